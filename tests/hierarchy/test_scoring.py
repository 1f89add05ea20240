"""Losses by rows against the plain formulas over whole matrices: values and gradients of every parameter."""

import dataclasses

import numpy as np
import pytest
import torch

from data.artifacts import Store
from hierarchy.losses import by_rows
from hierarchy.losses.dislike import dislike_loss
from hierarchy.losses.link import Barred, LogPartition, corrected_logits, sampled_softmax
from hierarchy.losses.several import SeveralPositives, several_positives
from hierarchy.losses.view_distillation import ViewDivergence, view_distillation
from hierarchy.objective import Teacher, Teaching, link_losses
from hierarchy.repeats import Had, history_places, history_share, repeated
from tests.hierarchy import small_learner as small

FULL = {"full_softmax": 100, "item_budget": {"recent": 0, "uniform": 0, "two_hop": 0, "links": 0}}
USER = {"recent": 8, "uniform": 0, "two_hop": 0, "links": 0}
CASES = {
    "sampled": {},
    "full": FULL,
    "sampled, known masked": {"mask_known": True},
    "full, known masked": {"mask_known": True, **FULL},
    "hard negatives": {"hard_negatives": 2, "warmup_steps": 0},
    "two heads": {"user_heads": 2, **FULL},
    "users as rows": {"rows": "users", "history": "others", "user_budget": USER, **FULL},
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return small.shop(Store(tmp_path_factory.mktemp("store")))


def _plain(trainer, passes, given, absent, teaching, teachers):
    """The loss terms from whole matrices of logits."""
    model, weights = trainer.student, trainer.config.weights
    users = passes.encode(model.encoder, given.users, model.encoder.shape.user_heads)

    def logits_of(candidates, repeats):
        vectors = passes.encode(model.encoder, candidates.seeds)[:, 0]
        cosine = torch.einsum("bqd,cd->bqc", users, vectors).amax(dim=1)
        logits = cosine * model.link.log_scale.exp() + model.link.popularity * candidates.log_degree
        if not repeats:
            return logits
        share = history_share(given.user_tokens.node, given.users.history, candidates.nodes)
        return logits + repeated(model.link.repeat, share)

    def link(logits, candidates, barred, rows):
        positive = logits.gather(1, candidates.targets[:, None])[:, 0]
        return sampled_softmax(positive, logits, candidates.log_expected, barred, rows)

    products, advertisers = given.products, given.advertisers
    logits, scored = logits_of(products, True), logits_of(advertisers, False)
    barred = products.accidental if absent is None else products.accidental | absent
    link_term = _several(logits, given) if given.asked is not None else link(logits, products, barred, given.weight)
    terms = {
        "link": link_term,
        "advertiser": link(scored, advertisers, advertisers.accidental, given.weight * given.owned),
    }
    rows = given.weight * given.users.history.any(dim=1)
    seen = []
    for teacher in teachers:
        scores, log_expected = teacher.scores(given)
        temperatures = (teacher.temperature, teaching.student_temp)
        seen.append(view_distillation(scores, logits, log_expected, temperatures, rows))
    assert weights.dislike == 0
    return terms | {"teachers": torch.stack(seen).mean()}


def _several(logits, given):
    nodes, asked = given.user_tokens.node.clamp(min=0), given.asked
    positives = torch.cat([given.products.targets[:, None], nodes], dim=1)
    there = torch.cat([torch.ones_like(asked[:, :1]), asked], dim=1)
    absent = torch.isinf(given.products.log_expected)
    return several_positives(logits, absent, positives, there, nodes, given.users.history, given.weight)


def _ready(inputs, **changes):
    """A trainer whose parameters, those of the head too, are not at a start where gradients are zero."""
    trainer = small.prepared(inputs, repeats=True, **changes)
    for step in range(3):
        trainer.step(step, trainer.draw(step))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        trainer.student.link.repeat.copy_(torch.tensor([0.7, 0.3]))
        trainer.student.encoder.latents.normal_(generator=generator)  # heads apart, else rounding chooses between them
        for layer in trainer.student.encoder.layers:
            layer.attention.output.normal_(generator=generator)
    return trainer


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("case", list(CASES))
def test_by_rows_is_the_plain_formula(inputs, case, temperature, monkeypatch):
    trainer = _ready(inputs, **CASES[case])
    given = trainer.miner.extended(trainer.draw(4), 4, trainer.config.negatives)
    absent = trainer.miner.absent(given)
    known = given.engaged if given.engaged is not None else absent
    assert (given.asked is not None and bool(given.asked.any())) == (case == "users as rows")
    assert (given.products.distinct, known is None) == (bool({**CASES[case]}.get("full_softmax")), absent is None)
    assert (given.products.log_expected.ndim == 2) == (case == "hard negatives")
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((2, 2, trainer.visible["product"], 5)).astype(np.float32) + 0.5
    teachers = [Teacher(*map(torch.from_numpy, pair), 0.3) for pair in arrays]
    teaching = Teaching(student_temp=temperature)
    passes = trainer.passes(trainer.prototypes if trainer.born else None)
    monkeypatch.setattr(by_rows, "AT_ONCE", 7 * len(given.products.nodes))
    found = []
    for make in (
        lambda: link_losses(trainer.student, passes, given, trainer.config.weights, known, teaching, teachers, True),
        lambda: _plain(trainer, passes, given, absent, teaching, teachers),
    ):
        trainer.student.zero_grad()
        terms = make()
        (terms["link"] + 0.5 * terms["advertiser"] + 2 * terms["teachers"]).backward()
        gradients = {n: p.grad.clone() for n, p in trainer.student.named_parameters() if p.grad is not None}
        found.append(({name: term.item() for name, term in terms.items()}, gradients))
    (terms, gradients), (wanted, plain) = found
    assert terms == pytest.approx(wanted, rel=2e-5)
    assert set(gradients) == set(plain)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, plain[name], rtol=2e-3, atol=2e-6, msg=lambda text, n=name: f"{n}: {text}")
    # A user as a row is not asked for what it is made of, so nothing is said of repeats.
    head = ["log_scale", "popularity"] + ["repeat"] * (case != "users as rows")
    assert all(gradients[f"link.{name}"].abs().max() > 1e-4 for name in head)


def test_a_target_that_nobody_knew_as_of_the_batch_is_in_its_own_sum(inputs):
    """Full softmax over products of which the positives are void."""
    trainer = small.prepared(inputs, **FULL)
    given = trainer.draw(3)
    known = torch.isfinite(given.products.log_expected) & (torch.arange(len(given.products.nodes)) % 2 == 0)
    log_expected = torch.where(known, 0.0, torch.inf)
    given = dataclasses.replace(given, products=given.products.replaced(log_expected, given.products.targets))
    assert not known[given.products.targets].all()
    found = link_losses(trainer.student, trainer.passes(), given, trainer.config.weights)["link"]
    products = given.products
    users, vectors = (
        trainer.passes().encode(trainer.student.encoder, seeds) for seeds in (given.users, products.seeds)
    )
    vectors = vectors[:, 0]
    logits = trainer.student.link(users, vectors, products.log_degree)
    wanted = logits.masked_fill(~known[None] & ~products.accidental, -torch.inf)
    losses = torch.nn.functional.cross_entropy(wanted, products.targets, reduction="none")
    assert found.item() == pytest.approx(((losses * given.weight).sum() / given.weight.sum()).item(), rel=1e-5)


def _score(rows, users, keys, bias):
    return torch.addmm(bias, users, keys.t())


def _had(rows, count, distinct=True):
    """A history of three tokens a row, of which two count; one product twice."""
    history = torch.arange(3 * rows).reshape(rows, 3) % count
    history[:, 1] = history[:, 0]
    return Had(torch.arange(count), distinct, history, torch.tensor([True, True, False]).expand(rows, 3))


@pytest.mark.parametrize("pairs", [False, True])
def test_gradients_are_those_of_finite_differences_in_fp64(pairs, monkeypatch):
    monkeypatch.setattr(by_rows, "AT_ONCE", 3 * 11)
    generator = torch.Generator().manual_seed(0)
    users, keys, view_users, view_keys = (
        torch.randn(n, 4, generator=generator, dtype=torch.float64, requires_grad=True) for n in (8, 11, 8, 11)
    )
    bias = torch.randn(11, generator=generator, dtype=torch.float64, requires_grad=True)
    targets, rows = torch.tensor([0, 1, 2, 3, 4, 4, 9, 10]), torch.tensor([0, 3, 3, 7])
    columns = torch.tensor([5, 0, 10, 10])
    barred = Barred(torch.arange(11), targets, True, (rows, columns) if pairs else None)
    expected = torch.linspace(-1, 1, 11, dtype=torch.float64)
    view = ViewDivergence(view_users.detach(), view_keys.detach(), expected, 0.7, _had(8, 11, distinct=not pairs))
    positives, there = torch.tensor([[0, 4, 4]]).repeat(8, 1), torch.tensor([[True, True, pairs]]).repeat(8, 1)
    losses = [LogPartition(barred), view, SeveralPositives(positives, there, expected, _had(8, 11))]

    def everything(*given):
        return by_rows.by_rows(_score, losses, *given)

    assert torch.autograd.gradcheck(everything, (users, keys, bias))
    absent = torch.nn.functional.one_hot(targets, 11).bool()
    if pairs:
        absent[rows, columns] = True
    logits = (users @ keys.t() + bias).masked_fill(absent, -torch.inf)
    assert torch.allclose(everything(users, keys, bias)[0], torch.logsumexp(logits, dim=1), rtol=1e-12)


def test_divergences_in_fp64_are_kl_divergences():
    generator = torch.Generator().manual_seed(1)
    users, products, logits = (torch.randn(*shape, generator=generator).double() for shape in ((6, 3), (9, 3), (6, 9)))
    for distinct in (True, False):
        view = ViewDivergence(users, products, torch.zeros(9).double(), 0.5, _had(6, 9, distinct))
        before = logits.clone()
        found = view.value(slice(0, 6), logits)
        assert torch.equal(before, logits)
        for row in range(6):
            kept = [column for column in range(9) if column != 3 * row % 9]
            teacher = torch.log_softmax(users[row] @ products[kept].t(), dim=0)
            student = torch.log_softmax(logits[row, kept] / 0.5, dim=0)
            wanted = torch.nn.functional.kl_div(student, teacher, log_target=True, reduction="sum")
            assert found[row].item() == pytest.approx(wanted.item(), rel=1e-12)


def test_a_row_without_negatives_has_no_loss_and_no_gradient():
    users, keys = torch.ones(2, 3, requires_grad=True), torch.ones(1, 3, requires_grad=True)
    barred = Barred(torch.tensor([5]), torch.tensor([0, 0]), True)
    (found,) = by_rows.by_rows(_score, [LogPartition(barred)], users, keys, torch.zeros(1))
    loss = torch.nn.functional.softplus(found - 2.0).sum()
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(users.grad, torch.zeros(2, 3))


def test_the_partition_of_dislikes_is_that_of_the_corrected_logits():
    generator = torch.Generator().manual_seed(2)
    logits, nodes = torch.randn(5, 8, generator=generator), torch.tensor([3, 1, 3, 0, 2, 7, 7, 4])
    barred = Barred(nodes, torch.tensor([0, 1, 2, 5, 7]), False)
    found = LogPartition(barred).value(slice(0, 5), logits)
    accidental = nodes[None] == nodes[barred.targets][:, None]
    wanted = torch.logsumexp(corrected_logits(logits, torch.zeros(8), accidental), dim=1)
    assert torch.allclose(found, wanted)
    assert torch.isfinite(dislike_loss(logits[:, 0], found, torch.ones(5)))


def test_pairs_need_distinct_candidates():
    pairs = (torch.tensor([0]), torch.tensor([1]))
    barred = Barred(torch.tensor([4, 4]), torch.tensor([0]), False, pairs)
    with pytest.raises(ValueError, match="where candidates can come twice"):
        barred.fill(slice(0, 1), torch.zeros(1, 2))


def test_the_places_of_a_history_are_its_shares():
    generator = torch.Generator().manual_seed(0)
    history = torch.randint(0, 9, (7, 12), generator=generator)
    mask = torch.rand(history.shape, generator=generator) < 0.6
    mask[0] = False
    candidates = torch.tensor([4, 20, 0, 8, 1])
    ordered = candidates.sort()
    columns, share = history_places(history, mask, ordered.indices, ordered.values)
    found = torch.zeros(7, 5).scatter_add_(1, columns, share)
    torch.testing.assert_close(found, history_share(history, mask, candidates))
    assert found.any(dim=1).tolist() == [False, *[True] * 6]


def test_no_matrix_of_all_logits_exists(inputs, monkeypatch):
    trainer = small.prepared(inputs, **FULL)
    given, shapes = trainer.draw(0), []
    size = 5 * len(given.products.nodes)
    monkeypatch.setattr(by_rows, "AT_ONCE", size)
    plain = by_rows._slope
    monkeypatch.setattr(by_rows, "_slope", lambda *args: shapes.append(args[2].numel()) or plain(*args))
    link_losses(trainer.student, trainer.passes(), given, trainer.config.weights)["link"].backward()
    assert max(shapes) == size
    assert sum(shapes) == len(given.user) * len(given.products.nodes)


def test_losses_over_all_products_ask_nothing_of_their_device():
    """On `meta`, which has no values, a question would raise."""
    with torch.device("meta"):
        nodes, targets, tokens = torch.arange(11), torch.zeros(6, dtype=torch.int64), torch.zeros(6, 3).long()
        had = Had(nodes, True, tokens, torch.ones(6, 3).bool())
        barred = Barred(nodes, targets, True, (targets, targets))
        users, keys, bias, expected = torch.zeros(6, 4), torch.zeros(11, 4), torch.zeros(11), torch.zeros(11)
        losses = [
            LogPartition(barred),
            SeveralPositives(tokens, torch.ones(6, 3).bool(), expected, had),
            ViewDivergence(users, keys, expected, 0.7, had),
        ]
        found = by_rows.by_rows(_score, losses, users.requires_grad_(), keys.requires_grad_(), bias)
        torch.stack(found).sum().backward()
    assert users.grad.device.type == keys.grad.device.type == "meta"
