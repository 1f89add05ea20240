"""Stage user_states: the offline user model, trained before t0, and the states it gives each user at weekly dates.

A state as of a date reads the events with visible_from <= that date and nothing else. States of a date are computed in
batches that are a function of what was visible by then, so that later events change none of their bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, UtcTime, derive_seed
from data.errors import UsageError
from data.schema import MICROS_PER_DAY, to_micros
from ranking.asof import Ints
from ranking.threads import one_thread
from ranking.user_events import UserEvents
from ranking.user_model import UserArchitecture, UserModel
from ranking.user_tasks import Catalogue, make_pools
from ranking.user_training import Training, UserSchedule

_BATCH_EVENTS = 16_384
"""Events of the users whose states are computed together. It can change last bits, so it is no setting."""

ROWS = pa.schema([("user_id", pa.string()), ("as_of", pa.int64()), ("row", pa.int64())])
"""Which row of states.npy holds the states of a user as of a date [us]; sorted by (user_id, as_of)."""


class Config(StageConfig):
    """The model's cut, size and training."""

    t0: UtcTime = Field(description="the model learns from events visible before it (UTC); states start here")
    architecture: UserArchitecture = Field(default=UserArchitecture(), description="size of the user model")
    schedule: UserSchedule = Field(default=UserSchedule(), description="how the user model is trained")


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Train, then write model.safetensors, user_model.json, states.npy float16 (rows, k, d) and rows.parquet.

    Dates are those of the tokens from t0 on; a user has a row at each date before which, since the date before, an
    event became visible. Time: epochs x users x window, then rows x window. Memory: token rows, about 40 bytes per
    event, 60 bytes per emitted row, the tables four times, and one batch. A killed run goes on from its last
    checkpoint with identical results. It runs on the CPU and one thread, whatever `ctx` says. Raises UsageError when
    heads do not part the width evenly.
    """
    size = config.architecture
    if size.width % (2 * size.heads):
        raise UsageError(f"user_states: expected a width that 2 x heads divides, got {size.width} and {size.heads}")
    events = UserEvents.open(inputs, size.product_buckets, size.advertiser_buckets, to_micros(config.t0), ctx)
    with one_thread():
        training = make_training(config, events, ctx.seed)
        with ctx.progress.step("train user model", training.steps, "steps") as step:
            training.train(out.work / "user_model.safetensors", step.advance)
        validation, popularity = training.judge()
        out.write_tensors("model.safetensors", training.model.state_dict())
        rows = _write_states(training.model, events, size, inputs, out, ctx)
    out.write_json("user_model.json", _description(config, events, training))
    figures = {"validation": validation, "popularity": popularity, "steps": training.steps}
    return {**figures, "rows": rows, "users": len(events.index.keys), "trained_users": len(training.users)}


def make_training(config: Config, events: UserEvents, seed: int) -> Training:
    """A model before its first step; its first weights depend on the seed and its size alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "user_states", "init"))
        model = UserModel(config.architecture, events.num_primitives, events.levels)
    schedule = config.schedule
    catalogue = Catalogue.build(events, events.t0 - schedule.valid_days * MICROS_PER_DAY)
    return Training(
        model, events, catalogue, schedule, config.architecture.max_events, derive_seed(seed, "user_states")
    )


@dataclass(frozen=True)
class Due:
    """Users (n,) whose history grew between the date before and `as_of` [us], with their windows start:end."""

    as_of: int
    users: Ints
    start: Ints
    end: Ints

    def batches(self) -> Iterator[Ints]:
        """Places among `users`, about _BATCH_EVENTS events at a time, alike in length so that little is padded."""
        lengths = self.end - self.start
        order = np.argsort(lengths, kind="stable")
        group = np.cumsum(lengths[order]) // _BATCH_EVENTS
        yield from np.split(order, np.flatnonzero(np.diff(group)) + 1) if len(order) else []


def due(events: UserEvents, max_events: int) -> list[Due]:
    """Every date of the tokens from t0 on, with the users that have states to be made."""
    dates = [date for date in events.dates if date >= events.t0]
    before, found = events.visible(np.iinfo(np.int64).min)[1], []
    for date in dates:
        start, end = events.visible(date)
        users = np.flatnonzero(end > before)
        found.append(Due(date, users, np.maximum(start, end - max_events)[users], end[users]))
        before = end
    return found


@torch.inference_mode()
def states_at(model: UserModel, events: UserEvents, date: int, start: Ints, end: Ints) -> NDArray[np.float32]:
    """float32 (U, k, d): states as of `date` [us] of users whose windows hold the events start:end, one at least."""
    model.eval()
    batch = events.batch(start, end)
    pools = make_pools(batch, np.arange(len(start)), end - start, np.full(len(start), date, np.int64))
    states: NDArray[np.float32] = model.pool(model.events(batch), batch, pools).numpy()
    return states


def _write_states(
    model: UserModel,
    events: UserEvents,
    size: UserArchitecture,
    inputs: Mapping[str, ArtifactRef],
    out: OutputDir,
    ctx: RunContext,
) -> int:
    """Rows of states.npy by (date, user), so that a date is a run of rows; rows.parquet finds them by user."""
    plan = due(events, size.max_events)
    rows = sum(len(one.users) for one in plan)
    states = out.open_array("states.npy", (rows, size.seeds, size.width), np.float16)
    done = 0
    with ctx.progress.step("emit user states", rows, "rows") as step:
        for one in plan:
            for part in one.batches():
                made = states_at(model, events, one.as_of, one.start[part], one.end[part])
                states[done + part] = made
                step.advance(len(made))
            done += len(one.users)
    states.flush()
    _write_rows(plan, inputs["histories"].table("users.parquet", ["user_id"])["user_id"].combine_chunks(), out)
    return rows


def _write_rows(plan: list[Due], names: pa.Array, out: OutputDir) -> None:
    """Where states are found: sorted by user, whose `names` are in order, then by date."""
    user = np.concatenate([np.zeros(0, np.int64), *(one.users for one in plan)])
    as_of = np.repeat([one.as_of for one in plan], [len(one.users) for one in plan]).astype(np.int64)
    order = np.lexsort((as_of, user))
    columns = [names.take(pa.array(user[order])), pa.array(as_of[order]), pa.array(order.astype(np.int64))]
    out.write_table("rows.parquet", pa.Table.from_arrays(columns, schema=ROWS))


def _description(config: Config, events: UserEvents, training: Training) -> dict[str, Any]:
    """What a reader needs to load the model, and how it was made."""
    known = np.flatnonzero(events.table_row[:-1])
    ids = events.tokens.vocabulary["primitive_id"].take(pa.array(known)).to_pylist()
    parameters = sum(value.numel() for value in training.model.state_dict().values())
    return {
        "config": config.result_fields(),
        "levels": [list(level) for level in events.levels],
        "primitives": ids,
        "parameters": parameters,
        "checks": training.log,
    }
