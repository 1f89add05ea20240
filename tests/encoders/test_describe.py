from encoders.describe import Facts, advertiser_text, category_text, leaf, product_facts, product_text, user_facts

PRODUCT = {
    "product_id": "p7",
    "title": "Kids Cereal 14.5 Oz",
    "description": None,
    "category": ["Grocery", "Cold Cereal", "Kids Cereal"],
    "attributes": [("size", "14.5 OZ"), ("brand", "National")],
    "price": None,
}


def test_product_text_says_nothing_twice():
    assert product_text(PRODUCT) == "Kids Cereal, Cold Cereal, Grocery"
    assert product_text(PRODUCT | {"title": "Muesli p7", "description": "Crunchy."}) == (
        "Muesli, Kids Cereal, Cold Cereal, Grocery. Crunchy."
    )


def test_a_product_without_words_has_no_text():
    bare = PRODUCT | {"title": None, "category": None}
    assert product_text(bare) is None
    assert product_text(bare | {"category": ["Grocery"]}) == "Grocery"


def test_a_product_named_as_its_category_shares_its_text():
    assert product_text(PRODUCT) == category_text(PRODUCT["category"])


def test_advertiser_text_leaves_the_id_out():
    row = {"advertiser_id": "69", "name": "Manufacturer 69", "description": None, "vertical": "Grocery"}
    assert advertiser_text(row) == "Manufacturer, Grocery"
    assert advertiser_text(row | {"name": None, "vertical": None}) is None


def test_facts_are_sorted_and_none_when_there_are_none():
    facts = product_facts(PRODUCT)
    assert facts == Facts(("Grocery", "Cold Cereal", "Kids Cereal"), (("brand", "National"), ("size", "14.5 OZ")))
    assert product_facts({"category": None, "attributes": None, "price": None}) is None
    assert user_facts({"attributes": []}) is None


def test_leaf_is_the_finest_category():
    assert leaf(["A", None, "B"]) == "A > B"
    assert leaf(None) is None
