import numpy as np
import pytest

from data.errors import UsageError
from encoders.attributes import AttributeEncoder, fit_knots, numbers, quantity
from encoders.describe import Facts


def encode(*rows, knots=None, **options):
    return AttributeEncoder(knots or {}, **options).encode(rows)


def test_quantities_are_numbers_with_at_most_a_unit():
    assert quantity("size", "14.5 OZ") == ("size [oz]", 14.5)
    assert quantity("count", "3") == ("count []", 3.0)
    assert quantity("size", "12/18 pk") is None
    assert quantity("age", "45-54") is None


def test_labels_are_never_numbers():
    facts = Facts(attributes=(("code", "12"), ("size", "2")), price=5.0)
    assert numbers(facts, frozenset({"code"})) == {"size []": 2.0, "price": 5.0}


def test_siblings_share_all_but_their_last_category():
    rows = [
        Facts(("Food", "Fruit", "Apple")),
        Facts(("Food", "Fruit", "Pear")),
        Facts(("Food", "Bakery", "Rye")),
        Facts(("Home",)),
    ]
    apple, pear, rye, home = encode(*rows, dim=512)
    assert apple @ pear > apple @ rye + 0.15 > apple @ home + 0.3
    assert abs(apple @ home) < 0.15


def test_close_numbers_are_close():
    rows = [Facts(attributes=(("size", f"{size} oz"),)) for size in range(1, 101)]
    vectors = encode(*rows, knots=fit_knots(rows), dim=512)
    assert vectors[49] @ vectors[50] > 0.95
    assert abs(vectors[4] @ vectors[95]) < 0.2
    outside = encode(Facts(attributes=(("size", "900 oz"),)), knots=fit_knots(rows), dim=512)
    np.testing.assert_allclose(outside[0], vectors[99], atol=1e-6)


def test_a_number_that_was_never_fitted_is_still_told_from_nothing():
    one, other = encode(Facts(attributes=(("size", "4"),)), Facts())
    assert np.linalg.norm(one) == pytest.approx(1)
    assert not other.any()


def test_a_vector_does_not_depend_on_its_batch_or_spelling():
    tea = Facts(("Drinks",), (("style", "Green"),))
    crowd = encode(Facts(("Pets",)), tea, Facts(("Garden",), (("style", "Red"),)))
    np.testing.assert_allclose(crowd[1], encode(Facts(("Drinks",), (("style", "green"),)))[0], atol=1e-6)


def test_wide_hashes_are_refused():
    with pytest.raises(UsageError, match="1 to 512"):
        AttributeEncoder({}, dim=513)
