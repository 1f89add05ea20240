"""The methods that are compared: a name, a space of settings and a fit each. A new one is one line in METHODS.

The first value of every list is the default; a search starts there. `directional_knn+spectral` and the like are
weighted sums of methods with the settings that the search found for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from hierarchy.baselines import dropoutnet, lightgcn, sasrec
from hierarchy.baselines.cheby_cf import ChebyCf
from hierarchy.baselines.content import ContentOnly
from hierarchy.baselines.directional_knn import DirectionalKnn
from hierarchy.baselines.ease import Ease
from hierarchy.baselines.fitting import Limits
from hierarchy.baselines.gf_cf import GfCf
from hierarchy.baselines.item_knn import ItemKnn
from hierarchy.baselines.novelty import Novelty
from hierarchy.baselines.popularity import Popularity
from hierarchy.baselines.spectral import Spectral
from hierarchy.baselines.transition_graph import TransitionGraph
from hierarchy.directional import DirectionalSettings
from hierarchy.recall import Inductive
from hierarchy.spectral import SpectralSettings, spectral_vectors
from tests.benchmarks.retrieval_quality.protocols import Known

_FEW = 200_000
"""Events up to which a table of all pairs of what users had, in whatever order, is made for the learner."""
Setting = dict[str, Any]
Space = Mapping[str, Sequence[Any]]
"""Values to choose from, by name of the setting."""


def _always(known: Known) -> bool:
    return True


class Method(NamedTuple):
    """A retrieval method. `fit(known, setting, seed, device)` gives a scorer; `suits` says where it can run at all;
    `learned` methods differ by more than rounding from seed to seed; `dense` ones hold products x products numbers, so
    that a fit is not kept for later."""

    name: str
    space: Callable[[Known], Space]
    fit: Callable[[Known, Setting, int, str], Inductive]
    suits: Callable[[Known], bool] = _always
    learned: bool = False
    dense: bool = False


def weights(parts: Sequence[str]) -> Space:
    """Space of a sum: the weight of each part but the first, which counts 1, and what brings them to one scale."""
    each = {f"weight of {part}": (0.3, 0.1, 0.2, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 0.05) for part in parts[1:]}
    return {**each, "scale": ("max", "z")}


def _ordered(known: Known) -> bool:
    return known.time_kind != "none"


def _decays(known: Known) -> Sequence[float]:
    """Of the history an occasion back: single purchases in order fade fast, whole baskets slowly."""
    if known.time_kind == "clock":
        return (0.9, 0.7, 0.8, 0.97, 1.0)
    return (0.75, 0.5, 0.6, 0.7, 0.8, 0.9) if _ordered(known) else (1.0,)


def _popularity(known: Known) -> Space:
    return {"window": (None, 7.0, 28.0) if known.time_kind == "clock" else (None,)}


def _item_knn(known: Known) -> Space:
    powers = {"source": (0.5, 0.2, 0.3, 0.4, 0.7), "target": (0.5, 0.2, 0.3, 0.4, 0.7)}
    if known.time_kind == "clock":
        return {**powers, "window": (7.0, 1.0, 28.0, 365.0), "half_life": (60.0, 14.0, 120.0, None)}
    return {**powers, "window": (1e9,), "half_life": (None, 1.5, 2.0, 3.0, 5.0) if _ordered(known) else (None,)}


def _directional(known: Known) -> Space:
    space: dict[str, Sequence[Any]] = {
        "row_power": (0.35, 0.2, 0.25, 0.3, 0.45),
        "column_power": (0.0, 0.05, 0.1, 0.15, 0.25),
        "user_power": (0.0, 0.5, 1.0) if _ordered(known) else (1.0, 0.0, 0.5),
    }
    if _ordered(known):
        space |= {"window": (20, 5, 10, 50), "decay": (0.8, 0.6, 0.7, 0.9), "rho": (0.0, 0.1, 0.3, 0.6)}
    if known.time_kind == "clock":
        # Baskets of many products: all pairs would be too much.
        space |= {"window": (5, 2, 10, 20), "column_power": (0.0, -0.25, -0.1, 0.1), "top": (500,)}
    return {**space, "recency_decay": _decays(known)}


def _spectral(dims: Sequence[int]) -> Callable[[Known], Space]:
    def space(known: Known) -> Space:
        order = known.time_kind == "order"
        return {
            "dim": dims,
            "user_power": (0.25, 0.1, 0.4, 0.5) if order else (0.4, 0.25, 0.5),
            "item_power": (0.35, 0.25, 0.4, 0.5) if order else (0.4, 0.3, 0.35, 0.5),
            "source_power": (0.25, 0.1, 0.35, 0.5) if order else (0.3, 0.2, 0.25, 0.35),
            "target_power": (0.0, 0.1, 0.25) if order else (0.3, 0.2, 0.25, 0.35, 0.5, 0.0),
            "spectrum_power": (0.0, 0.5, 1.0) if order else (0.5, 0.0, 1.0),
            "recency_decay": (0.5, 0.4, 0.6, 0.75) if order else _decays(known),
        }

    return space


def _ease(known: Known) -> Space:
    return {
        "ridge": (200.0, 10.0, 20.0, 50.0, 100.0, 350.0, 500.0, 1000.0, 2000.0),
        "recency_decay": (1.0, 0.5, 0.6, 0.7, 0.8) if _ordered(known) else (1.0,),
    }


def _gf_cf(known: Known) -> Space:
    return {
        "low_pass": (0.3, 0.0, 0.1, 0.2, 0.5, 1.0),
        "dim": (256, 128, 512),
        "linear_power": (0.0, 0.15, 0.25, 0.35),
        "recency_decay": (1.0, *_decays(known)) if _ordered(known) else (1.0,),
    }


def _cheby_cf(known: Known) -> Space:
    return {
        "order": (8, 4, 6, 10),
        "flatness": (1.5, 1.0, 2.0, 3.0),
        "dim": (512, 256, 128),
        "low_pass": (0.2, 0.0, 0.1, 0.4),
        "power": (0.4, 0.1, 0.25, 0.3, 0.5),
        "recency_decay": (1.0, *_decays(known)) if _ordered(known) else (1.0,),
    }


def _transition_graph(known: Known) -> Space:
    return {
        "last": (2, 1),
        "window": (1, 2, 3, 5),
        "both": (False, True),
        "hop": (0.3, 0.0, 0.1, 1.0),
        "similarity": (0.1, 0.03, 0.3, 1.0) if known.content is not None else (0.0,),
        "decay": (0.5, 0.3, 0.7),
    }


def _content(known: Known) -> Space:
    return {"half_life": (None,)}


def _fit_directional(known: Known, setting: Setting, seed: int, device: str) -> Inductive:
    table = {name: value for name, value in setting.items() if name != "recency_decay"}
    return DirectionalKnn(known.history, DirectionalSettings(**table), setting["recency_decay"])


def _fit_spectral(known: Known, setting: Setting, seed: int, device: str) -> Inductive:
    vectors = {name: value for name, value in setting.items() if name != "recency_decay"}
    return Spectral(known.history, SpectralSettings(**vectors), setting["recency_decay"], seed)


def _fit_ease(known: Known, setting: Setting, seed: int, device: str) -> Inductive:
    return Ease(known.history, **setting, memory=8.0 if device == "cpu" else 100.0, device=device)


def _fit_content(known: Known, setting: Setting, seed: int, device: str) -> Inductive:
    assert known.content is not None
    return ContentOnly(known.history, known.content)


def _fitted(module: ModuleType, epochs: Sequence[int], **changes: Sequence[Any]) -> Callable[[Known], Space]:
    """The space of a module with DEFAULTS and SPACE, its default first, but for `changes`; nothing stops a fit here but
    its `epochs`."""
    own = {
        name: (module.DEFAULTS[name], *(v for v in values if v != module.DEFAULTS[name]))
        for name, values in module.SPACE.items()
    }
    return lambda known: {**own, **changes, "epochs": epochs}


def _fit_lightgcn(known: Known, setting: Setting, seed: int, device: str) -> Inductive:
    own, limits = _with_limits(setting, device)
    return lightgcn.fit(known.history, own, seed, device, limits)


def _fit_sasrec(known: Known, setting: Setting, seed: int, device: str) -> Inductive:
    own, limits = _with_limits(setting, device)
    return sasrec.fit(known.history, own, seed, device, limits)


def _fit_dropoutnet(known: Known, setting: Setting, seed: int, device: str) -> Inductive:
    """Preferences are those of spectral vectors in their default setting."""
    assert known.content is not None
    own, limits = _with_limits(setting, device)
    chosen = {name: values[0] for name, values in _spectral((256,))(known).items()}
    decay = chosen.pop("recency_decay")
    vectors = spectral_vectors(known.history, SpectralSettings(**chosen), seed)
    preferences = vectors.users(known.history.profile(decay)), vectors.target
    return dropoutnet.fit(known.history, preferences, known.content, own, seed, device, limits)


def _with_limits(setting: Setting, device: str) -> tuple[Setting, Limits]:
    own = {name: value for name, value in setting.items() if name != "epochs"}
    return own, Limits(epochs=setting["epochs"], record=device != "cpu")


def _told(known: Known) -> bool:
    return known.content is not None


def _learner(known: Known) -> Space:
    """Fields of the learner's configuration over the recipe of learner.config_of."""
    if known.time_kind == "clock":
        return {
            "epochs": (1.0, 0.5, 0.25),
            "lr": (2e-3, 1e-3, 5e-4),
            "id_lr": (5e-4, 1e-3, 2e-4),
            "dropout": (0.5, 0.3),
            "hide_target": (0.0, 0.5, 1.0),
            "history_decay": (0.97, 0.9, 0.99),
            "popularity_days": (14.0, 28.0, 7.0),
            "popularity": (2.0, 1.0, 4.0),
            "weights": [{"teachers": weight} for weight in (1.0, 0.0, 3.0)],
        }
    if _ordered(known):
        views = [(*sizes, gain) for gain in (0.3, 0.5, 0.2, 1.0) for sizes in ((192, 64), (128, 128), (224, 32))]
        return {
            "epochs": (10.0, 5.0, 14.0),
            "lr": (1e-3, 2e-3, 5e-4),
            "id_lr": (1e-3, 5e-4, 2e-3),
            "dropout": (0.5, 0.4, 0.6),
            "history_decay": (0.75, 0.65, 0.85),
            "structure": [{"spectral": one, "directional": other, "gain": gain} for one, other, gain in views],
        }
    space: dict[str, Sequence[Any]] = {
        "epochs": (60.0, 40.0, 100.0),
        "id_lr": (3e-4, 2e-4, 6e-4),
        "dropout": (0.3, 0.1, 0.5),
        "weights": [{"teachers": weight} for weight in (3.0, 1.0, 6.0, 12.0)],
        "asked_share": (0.3, 0.2, 0.5),
    }
    if len(known.history.user) > _FEW:
        return {**space, "teaching": [{"perplexity": value} for value in (100.0, 50.0, 200.0)]}
    alone = {"spectral": 0, "directional": 252, "user_share": 1.0, "row_power": 0.25, "rho": 1.0, "teacher_dim": 512}
    teachings = [{"views": ("directional",), "perplexity": value} for value in (100.0, 30.0, 300.0)]
    return {**space, "epochs": (20.0, 5.0, 60.0), "structure": (alone,), "teaching": teachings}


def _learner_cold(known: Known) -> Space:
    """What is asked for has no id and no popularity, so neither may matter much to what is learned."""
    return {
        "id_dropout": (0.5, 0.25, 0.75),
        "epochs": (10.0, 5.0, 20.0),
        "lr": (1e-3, 3e-4),
        "dropout": (0.3, 0.5),
        "history_decay": (0.97, 0.9, 0.75),
        "popularity": (0.0, 0.2),
        "lending": [{"gain": gain, "power": power} for gain in (1.0, 2.0, 3.0) for power in (4.0, 2.0)],
    }


def _fit_learner(known: Known, setting: Setting, seed: int, device: str) -> Inductive:
    from tests.benchmarks.retrieval_quality import learner  # here: it takes torch and the pipeline

    own = {name: value for name, value in setting.items() if name != "popularity"}
    found = learner.fit(known.history, known.content, known.time_kind, own, seed, device)
    return found if "popularity" not in setting else found.with_popularity(setting["popularity"])


METHODS: tuple[Method, ...] = (
    Method("popularity", _popularity, lambda known, setting, seed, device: Popularity(known.history, **setting)),
    Method("item_knn", _item_knn, lambda known, setting, seed, device: ItemKnn(known.history, **setting)),
    Method("directional_knn", _directional, _fit_directional),
    Method("spectral-256", _spectral((256,)), _fit_spectral),
    Method("spectral", _spectral((512, 256, 1024)), _fit_spectral),
    Method("spectral-1536", _spectral((1536,)), _fit_spectral),
    Method("ease", _ease, _fit_ease, dense=True),
    Method("gf_cf", _gf_cf, lambda known, setting, seed, device: GfCf(known.history, **setting, seed=seed)),
    Method("cheby_cf", _cheby_cf, lambda known, setting, seed, device: ChebyCf(known.history, **setting, seed=seed)),
    Method(
        "transition_graph",
        _transition_graph,
        lambda known, setting, seed, device: TransitionGraph(known.history, known.content, **setting),
        _ordered,
    ),
    # Batches larger than the published 2,048, which takes hundreds of epochs: retrieval_learned runs that one.
    Method("lightgcn", _fitted(lightgcn, (60, 30, 120), batch=(8192, 4096, 16384)), _fit_lightgcn, learned=True),
    Method("sasrec", _fitted(sasrec, (40, 20, 80)), _fit_sasrec, _ordered, True),
    Method("learner", _learner, _fit_learner, learned=True),
    Method("learner-cold", _learner_cold, _fit_learner, _told, True),
    Method("dropoutnet", _fitted(dropoutnet, (30, 15, 60)), _fit_dropoutnet, _told, True),
    Method("content", _content, _fit_content, _told),
    Method("novelty", lambda known: {}, lambda known, setting, seed, device: Novelty(known.history)),
)
"""Every method by order of the tables; some of them joined by "+" are their weighted sum."""
