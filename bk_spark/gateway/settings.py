"""Settings of a gateway. A field's first sentence is also the help of its command-line option."""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.config import MIB, check_numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayConfig:
    """Settings of one gateway process. Times in seconds, sizes in bytes."""

    max_calls: int = 256
    """Calls that are open at once; each has a thread, and a read or an append some MiB."""

    max_calls_per_identity: int = 64
    """Calls that one identity may have open at once, so that one cannot take them all."""

    max_tails_per_identity: int = 16
    """Tails among these: they may stay for ever, and each looks at its log once a second."""

    max_batch_bytes: int = 32 * MIB
    """The largest message that a caller may send: gRPC holds it in memory as a whole, for each call."""

    bytes_per_s: int = 0
    """What one identity may read and append a second, over all its calls to this gateway; 0: as much as there is."""

    silence_s: float = 60.0
    """An append, a writer or a look-up that has sent nothing for this long ends: nothing of an unfinished append is kept."""

    stall_s: float = 300.0
    """A reader that has taken nothing for this long ends; until then it holds one of its identity's calls and some MiB."""

    stop_s: float = 10.0
    """How long open calls may go on when the gateway is told to stop."""

    http_port: int = 0
    """Where to serve /metrics, /health and /ready; 0: nowhere."""

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("bytes_per_s",))
