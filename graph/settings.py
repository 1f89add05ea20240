"""Options of stage graph."""

from __future__ import annotations

from pydantic import Field

from data.context import StageConfig, execution
from data.schema import EVENT_TYPES
from graph.coengagement import Config as CoEngagement
from graph.guards import Config as Guards
from graph.store import DEFAULT_ENGAGEMENT


class Config(StageConfig):
    """Options of the stage."""

    event_types: tuple[str, ...] = Field(default=EVENT_TYPES, description="Event types that become edges, by name.")
    engagement: tuple[str, ...] = Field(
        default=DEFAULT_ENGAGEMENT, description="Event types that show interest, by name: what neighbourhoods are of."
    )
    guards: Guards | None = Field(
        default=Guards(), description="What is cut of a user's day before it becomes edges; unset: nothing."
    )
    co_engagement: CoEngagement | None = Field(
        default=CoEngagement(), description="Edges between what is engaged with together; unset: none."
    )
    memory_limit: str = execution("1GB", "What DuckDB may use before it spills to disk, such as '2GB'.")
    chunk_rows: int = execution(
        2_000_000, "Events held at a time [rows]: about 160 bytes each and thread. A longer day is dealt out.", gt=0
    )
