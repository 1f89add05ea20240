"""Frames of a film; to be run where a crash does no harm (see `child`). Needs PyAV, the extra `video`."""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from PIL import Image

from encoders.media.caps import Caps
from encoders.media.containers import is_whole
from encoders.media.fit import fitted
from encoders.media.reasons import Reason, Refused
from encoders.media.sniff import Kind
from encoders.pixels import Geometry

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_DEMUXERS = {Kind.MP4: "mov", Kind.MATROSKA: "matroska"}
CODECS = frozenset({"h264", "hevc", "vp8", "vp9", "av1", "libdav1d", "mpeg4"})
_OPTIONS = {"enable_drefs": "0", "use_absolute_path": "0"}
"""A MOV file may name other files as its data; these are FFmpeg's defaults, said once more."""

_PADDING = 1 << 20
"""Decoders make room for more pixels than they show, so their own cap is a wide one."""


def frames(data: bytes, kind: Kind, count: int, geometry: Geometry, caps: Caps) -> list[bytes]:
    """RGB bytes (size, size, 3) of at most `count` frames, evenly spaced in time; fewer when the film has fewer.

    Times are those of the frames in the file, not those its header claims. Pixels are taken as square. Raises Refused.
    """
    import av

    if not is_whole(data, kind):
        raise Refused(Reason.BROKEN)
    try:
        with av.open(io.BytesIO(data), format=_DEMUXERS[kind], options=_OPTIONS) as container:
            stream = _stream(container, caps)
            times, keys = _timeline(container, stream, caps)
            wanted = evenly(times, count)
            return [_fitted(frame, geometry, caps) for frame in _decoded(container, stream, wanted, keys)]
    except (Refused, MemoryError):
        raise
    except Exception as error:  # a parser of hostile bytes may raise anything
        raise Refused(Reason.BROKEN) from error


def evenly(times: list[int], count: int) -> list[int]:
    """At most `count` of the ascending `times`, nearest to the middles of as many equal spans of the whole."""
    if len(times) <= count:
        return times
    span = times[-1] - times[0]
    chosen = {_nearest(times, times[0] + span * (2 * index + 1) / (2 * count)) for index in range(count)}
    return sorted(chosen)


def _nearest(times: list[int], time: float) -> int:
    right = min(bisect.bisect_left(times, time), len(times) - 1)
    return min(times[max(right - 1, 0)], times[right], key=lambda found: abs(found - time))


def _stream(container: InputContainer, caps: Caps) -> VideoStream:
    """The first video stream, of a codec that is read and with frames in the cap as the header has them."""
    streams = container.streams.video
    if not streams or streams[0].codec_context.name not in CODECS:
        raise Refused(Reason.UNKNOWN_CODEC)
    context = streams[0].codec_context
    if context.width * context.height > caps.pixels:
        raise Refused(Reason.TOO_MANY_PIXELS)
    context.thread_count = 1
    context.options = {"max_pixels": str(2 * caps.pixels + _PADDING)}  # a stream may change its size on the way
    return streams[0]


def _timeline(container: InputContainer, stream: VideoStream, caps: Caps) -> tuple[list[int], list[int]]:
    """Times of all frames and of the key frames, ascending, in the stream's unit, without decoding any."""
    packets = [(packet.pts, packet.is_keyframe) for packet in container.demux(stream) if packet.pts is not None]
    times = sorted({pts for pts, _ in packets})
    keys = sorted({pts for pts, is_key in packets if is_key})
    if not keys or stream.time_base is None:
        raise Refused(Reason.BROKEN)
    if (times[-1] - times[0]) * stream.time_base > caps.duration:
        raise Refused(Reason.TOO_LONG)
    return times, keys


def _decoded(
    container: InputContainer, stream: VideoStream, wanted: list[int], keys: list[int]
) -> Iterator[VideoFrame]:
    """The frames at the times `wanted`, decoding from the key frame before each, or on from the last one."""
    reached = None
    for time in wanted:
        key = keys[max(bisect.bisect_right(keys, time) - 1, 0)]
        if reached is None or key > reached:
            container.seek(key, stream=stream)
            coming = container.decode(stream)
        frame = next((frame for frame in coming if frame.pts is not None and frame.pts >= time), None)
        if frame is None:
            raise Refused(Reason.BROKEN)
        reached = frame.pts
        yield frame


def _fitted(frame: VideoFrame, geometry: Geometry, caps: Caps) -> bytes:
    if frame.width * frame.height > caps.pixels:
        raise Refused(Reason.TOO_MANY_PIXELS)
    plane = frame.to_rgb().planes[0]
    image = Image.frombuffer("RGB", (plane.width, plane.height), bytes(plane), "raw", "RGB", plane.line_size, 1)
    return fitted(image.rotate(frame.rotation, expand=True), geometry)
