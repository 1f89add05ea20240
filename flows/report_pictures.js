
/* ---- pictures of products: what the page shows in words without them, it shows with them from here on ---- */
const { pictures } = JSON.parse(byId("page-data").textContent);
const inWords = { tile, drawPanel, drawBag };
const picture = (place) => make("img", { src: pictures[place][0], alt: pictures[place][1], title: pictures[place][1], draggable: false });

/* Pictures under a tile's words, or where no words fit, as many and as large as its free room takes. */
tile = function (place) {
  const node = inWords.tile(place), { label, pictures: places } = interests[place.i];
  const { size, height } = fitting(label, place);
  const free = size ? place.h - height - 1.5 * size - 22 : place.h - 10;
  const side = Math.min(80, free, place.w - 12), shown = places.filter((at) => at >= 0);
  if (side < 20) return node;
  const images = shown.slice(0, Math.floor((place.w - 8) / (side + 4))).map(picture);
  const shelf = make("span", { class: "shelf" }, ...images);
  shelf.style.setProperty("--side", `${side}px`);
  if (images.length) node.append(shelf);
  return node;
};

drawPanel = function () {
  inWords.drawPanel();
  const heading = [...byId("panel").querySelectorAll("h4")].find((node) => node.textContent === "Typical products");
  const places = interests[state.chosen].pictures;
  if (!heading || places.every((place) => place < 0)) return;
  heading.nextElementSibling.classList.add("gallery");
  [...heading.nextElementSibling.children].forEach((row, k) => { if (places[k] >= 0) row.prepend(picture(places[k])); });
};

drawBag = function (article, entity) {
  inWords.drawBag(article, entity);
  if (entity.picture >= 0) article.querySelector(".bag-body").prepend(make("span", { class: "portrait" }, picture(entity.picture)));
  article.querySelectorAll(".events span").forEach((title, k) => {
    const place = entity.events.pictures[k];
    if (place < 0) return;
    title.classList.add("pictured");
    title.prepend(picture(place));
  });
};

drawTree();
drawPanel();
for (const article of document.querySelectorAll(".bag")) {
  const entity = bags[article.dataset.kind][article.querySelector("select").value];
  if (entity) drawBag(article, entity);
}
