"""A fitted ranker in service: candidates of a user at a time, scored by the code that trained it.

A request becomes rows by `ranking.joins`, batches by `ranking.batch`, logits by `ranking.fitting.predict`: equal rows
in batches of equal shape score bitwise as in training, in other batches within 1e-5.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors.torch import load_file

from data.artifacts import ArtifactRef
from data.context import RunContext
from data.errors import BadDataError, UsageError, nearest
from ranking.arms import bags_of
from ranking.asof import Ints
from ranking.batch import Batcher
from ranking.evaluate import Floats, sigmoid
from ranking.fitting import predict
from ranking.joins import Joins, Row, fill_content, id_hashes
from ranking.model import Ranker
from ranking.models import Architecture, ranker_of
from ranking.reader import COLUMNS, HISTORY, MISSING, Examples, Level

INPUTS = ("examples", "histories", "features", "tokens", "user_states")
"""Artifacts that a service reads beside its ranker."""

CACHED_USERS = 10_000
"""Users at a time whose joins are kept; the oldest go first."""

_STALE_DAYS = 28


@dataclass(frozen=True)
class Request:
    """Products to rank for a user at `ts` [us]. `surface` is one for all or one a candidate, None where there is none.

    `advertisers`: one a candidate; where there is none a product's owner stands in. What a ranker knows at `ts` are
    tokens as of then and events that were readable by then.
    """

    user_id: str
    candidates: Sequence[str]
    ts: int
    surface: str | Sequence[str | None] | None = None
    advertisers: Sequence[str | None] | None = None


@dataclass(frozen=True)
class Ranking:
    """Candidates best first, equal scores in the order given; all (n,).

    `score`: probability of a purchase on the visit; `deep`: of another one within the ranker's window, given the first.
    `place`: where each stood in the request; `known`: whether the histories list the product. `cold`: the user has no
    history by then.
    """

    product_id: list[str]
    score: Floats
    deep: Floats
    place: Ints
    known: NDArray[np.bool_]
    cold: bool


class RankerService:
    """One fitted ranker with the joins it needs, ready for requests; not for use by several threads at once."""

    def __init__(self, network: Ranker, batcher: Batcher, joins: Joins, shift: float, surfaces: Sequence[str]) -> None:
        self._network, self._batcher, self._joins, self._shift = network, batcher, joins, shift
        self._codes = {kind: _codes(ids.to_pylist()) for kind, ids in joins.vocabularies.items()}
        self._surfaces = _codes(surfaces)
        self._users: OrderedDict[tuple[int, int], Row] = OrderedDict()

    @classmethod
    def open(
        cls,
        ranker: ArtifactRef,
        inputs: Mapping[str, ArtifactRef],
        fit: str = "ranker-tokens-0",
        ctx: RunContext | None = None,
    ) -> RankerService:
        """The ranker's fit `fit` over `INPUTS`; all but `examples` may be of a later run than the ranker.

        A later vocabulary is read by its public ids. Memory: the content of all products, about 40 bytes for each event
        and token row, 200 for each id. Raises UsageError for an unknown fit or one that is no ranker, BadDataError when
        the artifacts do not belong together.
        """
        about = ranker.json("ranker.json")
        _check(ranker, inputs, fit, about["fits"])
        levels = tuple(Level(**level) for level in about["levels"])
        slots = {level.level: (level.start, level.stop) for level in levels}
        joins = Joins.open(inputs, _STALE_DAYS, ctx or RunContext(threads=1))
        joins = replace(joins, tokens=joins.tokens.relabelled(ranker.table("primitives.parquet"), slots))
        view, size = _view(inputs, joins, levels), Architecture(**about["config"]["architecture"])
        batcher = Batcher(view, bags_of(view, fit.split("-")[1]), size.buckets, size.history_len, size.user_states)
        network = _network(ranker, fit, size, view)
        return cls(network, batcher, joins, about["fits"][fit]["shift"], view.surfaces)

    @property
    def products(self) -> pa.Array:
        """Ids of all products it knows."""
        return self._joins.vocabularies["product"]

    def products_known(self, ts: int) -> list[str]:
        """Ids of the products that were listed by `ts` [us]."""
        return list(self.products.filter(pa.array(self._joins.product_known <= ts)).to_pylist())

    def rank(
        self,
        user_id: str,
        candidates: Sequence[str],
        ts: int,
        surface: str | Sequence[str | None] | None = None,
        advertisers: Sequence[str | None] | None = None,
    ) -> Ranking:
        """The candidates of one user, best first; fields as in `Request`.

        An unknown user or product is scored as one without id, history, tokens and content. Raises UsageError for an
        unknown surface or advertiser, a time that is no whole number of microseconds, or lists of unequal length.
        """
        return self.rank_many([Request(user_id, candidates, ts, surface, advertisers)])[0]

    def rank_many(self, requests: Sequence[Request], batch_rows: int = 2048) -> list[Ranking]:
        """One ranking a request, scored together in batches of `batch_rows` rows; raises as `rank` does."""
        joined = [self.rows(request) for request in requests]
        if not joined:
            return []
        immediate, deep = self.logits(
            {name: np.concatenate([row[name] for row in joined]) for name in joined[0]}, batch_rows
        )
        ends = np.cumsum([len(row["ts"]) for row in joined])
        parts = zip(requests, joined, np.split(immediate, ends[:-1]), np.split(deep, ends[:-1]), strict=True)
        return [_ranking(*part) for part in parts]

    def logits(self, rows: Row, batch_rows: int = 2048) -> tuple[Floats, Floats]:
        """(immediate, deep) float64 (n,) of joined rows, immediate corrected for sampling as in training."""
        immediate, deep = predict(self._network, self._batcher.on(rows), np.arange(len(rows["ts"])), batch_rows)
        return immediate + self._shift, deep

    def rows(self, request: Request) -> Row:
        """Columns of `reader.COLUMNS` that a batch reads, for each candidate in its order."""
        count, ts = len(request.candidates), _time(request.ts)
        code = self._codes["user"].get(request.user_id, -1)
        product = _encode(request.candidates, self._codes["product"])
        row: Row = {name: np.broadcast_to(value, count) for name, value in self._user_side(code, ts).items()}
        row |= self._joins.candidate_side(row["user"], product, self._advertisers(request), row["ts"])
        row |= {"surface": self._surface(request), "label": np.zeros(count, np.uint8)}
        return {name: value.astype(COLUMNS[name], copy=False) for name, value in row.items()}

    def _user_side(self, user: int, ts: int) -> Row:
        """The user's joins, made once for all requests of the same time."""
        key = (user, ts)
        if key not in self._users:
            self._users[key] = self._joins.user_side(np.array([user]), np.array([ts]))
            if len(self._users) > CACHED_USERS:
                self._users.popitem(last=False)
        self._users.move_to_end(key)
        return self._users[key]

    def _advertisers(self, request: Request) -> Ints:
        if request.advertisers is None:
            return np.full(len(request.candidates), -1)
        _check_length("advertisers", request.advertisers, request)
        return _encode_known("advertiser", request.advertisers, self._codes["advertiser"])

    def _surface(self, request: Request) -> Ints:
        given = request.surface
        if given is None or isinstance(given, str):
            return np.broadcast_to(_encode_known("surface", [given], self._surfaces), len(request.candidates))
        _check_length("surfaces", given, request)
        return _encode_known("surface", given, self._surfaces)


def _check(ranker: ArtifactRef, inputs: Mapping[str, ArtifactRef], fit: str, fits: Mapping[str, Any]) -> None:
    """Raise UsageError for a fit that is no ranker, BadDataError for examples that the ranker was not fitted on and for
    states by another user model than theirs, whose components mean something else."""
    known = [name for name in fits if name.startswith("ranker-")]
    if fit not in known:
        raise UsageError(f"no fit {fit!r} of the ranker: {nearest(fit, known)}")
    trained_on = ranker.manifest["inputs"].get("examples", inputs["examples"].key)
    if trained_on != inputs["examples"].key:
        raise BadDataError(f"ranker {ranker.key}: expected examples {trained_on}, got {inputs['examples'].key}")
    learned_with = inputs["examples"].json("examples.json")["user_model"]
    model = inputs["user_states"].version("model.safetensors")
    if model != learned_with:
        raise BadDataError(f"ranker {ranker.key}: expected states by user model {learned_with}, got {model}")


def _view(inputs: Mapping[str, ArtifactRef], joins: Joins, levels: tuple[Level, ...]) -> Examples:
    """An examples artifact without rows, over the histories, features and tokens of `inputs`."""
    base, histories, features = Examples.open(inputs["examples"]), inputs["histories"], inputs["features"]
    content = np.zeros((len(joins.owner), features.array("content_product.npy").shape[1]), np.float32)
    fill_content(content, features, joins.vocabularies["product"])
    return replace(
        base,
        columns={},
        history={name: histories.array(f"{name}.npy") for name in HISTORY},
        offsets=histories.array("offsets.npy"),
        hashes=id_hashes(joins, histories, pa.array(base.surfaces, pa.string())),
        owner=joins.owner.astype(np.int32),
        content=content,
        primitive=joins.tokens.primitive,
        weight=joins.tokens.weight,
        first_tokens=joins.tokens.first_rows("product", len(joins.owner)),
        tokens_as_of=joins.tokens.as_of,
        user_states=inputs["user_states"].array("states.npy"),
        levels=levels,
    )


def _network(ranker: ArtifactRef, fit: str, size: Architecture, view: Examples) -> Ranker:
    """The fitted network, ready to predict."""
    weights = load_file(ranker.file(f"models/{fit}.safetensors"))
    for name, part, found in (
        ("content", "content", view.content.shape[1]),
        ("user states", "user_states", view.user_states.shape[2]),
    ):
        trained = weights[f"tokenizer.{part}.weight"].shape[1]
        if trained != found:
            raise BadDataError(f"ranker {ranker.key}: expected {name} of {trained} components, got {found}")
    network = ranker_of(view, size)
    network.load_state_dict(weights)
    return network.eval()


def _ranking(request: Request, row: Row, immediate: Floats, deep: Floats) -> Ranking:
    order = np.argsort(-immediate, kind="stable")
    return Ranking(
        product_id=[request.candidates[place] for place in order.tolist()],
        score=sigmoid(immediate[order]),
        deep=sigmoid(deep[order]),
        place=order,
        known=row["product"][order] >= 0,
        cold=bool((row["history_status"] == MISSING).all()),
    )


def _codes(ids: Sequence[str]) -> dict[str, int]:
    return {name: code for code, name in enumerate(ids)}


def _encode(ids: Sequence[str | None], codes: Mapping[str, int]) -> Ints:
    known: Mapping[Any, int] = codes  # None is no key, and so is absent
    return np.array([known.get(name, -1) for name in ids], np.int64)


def _encode_known(kind: str, ids: Sequence[str | None], codes: Mapping[str, int]) -> Ints:
    for name in ids:
        if name is not None and name not in codes:
            raise UsageError(f"unknown {kind} {name!r}: {nearest(name, codes)}")
    return _encode(ids, codes)


def _check_length(what: str, given: Sequence[Any], request: Request) -> None:
    if len(given) != len(request.candidates):
        raise UsageError(f"expected {what} for {len(request.candidates)} candidates, got {len(given)}")


def _time(ts: int) -> int:
    if isinstance(ts, bool) or not isinstance(ts, (int, np.integer)):
        raise UsageError(f"expected a time in whole microseconds since 1970 (UTC), got {ts!r}")
    return int(ts)
