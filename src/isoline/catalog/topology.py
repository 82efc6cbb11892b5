"""How one engine spells a topology, how its arguments are read back, how its nodes find each other.

Here ``tp`` is the number of devices of one pipeline stage of one worker, however attention is split
on them; ``dp_attention`` and ``dcp`` divide these devices and ``ep`` places experts on them
(DESIGN 5.1). Engines count in other ways, and that is what this module translates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pydantic import model_validator

from isoline.catalog.documents import Document
from isoline.catalog.sourced import Sourced
from isoline.errors import InputError


class Layout(NamedTuple):
    """One worker's devices in our words; see the module."""

    tp: int
    pp: int = 1
    ep: int = 1
    dp_attention: int = 1
    dcp: int = 1


class TopologySpelling(Sourced):
    """The canonical names that one engine gives to the parts of a topology.

    :ivar in_file: those of the names that are keys of the config file, not arguments.
    :ivar tp_counts: ``stage``: the size of a pipeline stage, as with us; ``attention_rank``: the
        devices of one attention replica, so that a stage is that times ``dp``.
    :ivar ep_switch: a switch that spreads the experts over the whole stage (no other width is possible).
    :ivar ep_implied_by: an argument that spreads the experts over the stage without saying so.
    :ivar dp_switch: a switch for DP attention; without ``dp`` it is as wide as the stage.
    :ivar budgets: whether limits such as the largest batch count per attention rank or for all of
        them, when DP attention is on.
    """

    in_file: list[str] = []
    tp: str
    tp_counts: Literal["stage", "attention_rank"] = "stage"
    pp: str | None = None
    ep: str | None = None
    ep_switch: str | None = None
    ep_implied_by: str | None = None
    dp: str | None = None
    dp_switch: str | None = None
    dcp: str | None = None
    budgets: Literal["attention_rank", "worker"]

    @property
    def names(self) -> set[str]:
        """All names that say topology: a recipe must not set them."""
        parts = (self.tp, self.pp, self.ep, self.ep_switch, self.dp, self.dp_switch, self.dcp)
        return {item for item in parts if item is not None}

    def args(self, layout: Layout) -> dict[str, int | bool]:
        """The engine's arguments for a layout; what is 1 or off is left out, except tp.

        :raises InputError: when the engine cannot be told this layout.
        """
        tp, pp, ep, dp, dcp = layout
        found: dict[str, int | bool] = {self.tp: tp // dp if self.tp_counts == "attention_rank" else tp}
        if pp > 1:
            found[self._has(self.pp, f"pp {pp}")] = pp
        if dp > 1:
            if self.dp is None and dp != tp:
                raise InputError(f"DP attention is as wide as tp ({tp}) or off here, not {dp}")
            if self.dp is None and self.dp_switch is None:
                raise InputError(f"no argument for dp_attention {dp}")
            found |= {self.dp: dp} if self.dp is not None else {}
            found |= {self.dp_switch: True} if self.dp_switch is not None else {}
        if ep > 1:
            if self.ep is not None:
                found[self.ep] = ep
            else:
                if ep != tp:
                    raise InputError(f"experts are spread over all {tp} devices of a stage or none, not {ep}")
                found[self._has(self.ep_switch, f"ep {ep}")] = True
        if dcp > 1:
            found[self._has(self.dcp, f"dcp {dcp}")] = dcp
        return found

    def rendezvous(self, layout: Layout, nodes: int) -> tuple[str, int] | None:
        """How the replicas of a worker lie on nodes: ``inside`` where each fits one node, with how many
        of them one has, else ``across`` (then 0); None without DP attention."""
        if layout.dp_attention == 1:
            return None
        local = layout.tp * layout.pp // nodes
        replica = layout.tp * layout.pp // layout.dp_attention
        return ("inside", local // replica) if replica <= local and local % replica == 0 else ("across", 0)

    def _has(self, name: str | None, what: str) -> str:
        if name is None:
            raise InputError(f"no argument for {what}")
        return name

    def read(self, args: Mapping[str, Any]) -> Layout:
        """The layout that canonical arguments mean (those that are absent have the engine's default, 1).

        :raises InputError: when a size is not a number.
        """
        dp = 1
        if self.dp_switch is None or _on(args.get(self.dp_switch)):
            dp = self._size(args, self.dp)
        tp = self._size(args, self.tp)
        if self.tp_counts == "attention_rank":
            tp *= dp
        if self.dp is None and self.dp_switch is not None and _on(args.get(self.dp_switch)):
            dp = tp
        ep = self._size(args, self.ep)
        switches = (self.ep_switch, self.ep_implied_by)
        if any(name is not None and _on(args.get(name)) for name in switches):
            ep = tp
        return Layout(tp, self._size(args, self.pp), ep, dp, self._size(args, self.dcp))

    def _size(self, args: Mapping[str, Any], name: str | None) -> int:
        value = args.get(name) if name is not None else None
        if value is None:
            return 1
        try:
            return int(value)
        except (TypeError, ValueError):
            raise InputError(f"{name} is {value!r}, not a number") from None


class RankArgs(Document):
    """Arguments of the ranks of a worker that spans nodes: of each, and on top of these of the first
    and of the others. ``not_others`` are arguments of a recipe that the others must not have."""

    every: dict[str, Any] = {}
    first: dict[str, Any] = {}
    others: dict[str, Any] = {}
    not_others: list[str] = []


class MultiNode(Sourced):
    """How a worker that spans nodes is told so.

    Either every node runs one command, its *rank*, with these arguments, or (``command``) MPI starts
    the same words once for each device. Placeholders: ``{nodes}``, ``{rank}``, ``{local}`` (attention
    replicas on a node) and ``{start}`` (the first of this rank); a launcher fills ``{master_host}``,
    ``{port.rendezvous}`` and ``{port.data_parallel}``.

    :ivar plain: without DP attention, or where the engine makes no difference.
    :ivar inside: with DP attention whose replicas each fit a node; None: like ``plain``.
    :ivar across: with DP attention whose replicas span nodes; None: like ``plain``.
    :ivar command: the whole beginning of the command line, in the place of the single node's.
    """

    plain: RankArgs | None = None
    inside: RankArgs | None = None
    across: RankArgs | None = None
    command: list[str] | None = None

    @model_validator(mode="after")
    def _is_one_of_two(self) -> MultiNode:
        if (self.plain is None) == (self.command is None):
            raise ValueError("a worker that spans nodes is told by plain (arguments) or by command (MPI)")
        return self

    def args(
        self, how: tuple[str, int] | None, nodes: int, rank: int
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """(arguments of one rank, arguments of a recipe that it must not have).

        :param how: of :meth:`TopologySpelling.rendezvous`.
        """
        assert self.plain is not None
        kind, local = how or ("plain", 0)
        part = {"inside": self.inside, "across": self.across}.get(kind) or self.plain
        values = {"nodes": nodes, "rank": rank, "local": local, "start": rank * local}
        own = part.others if rank else part.first
        found = {name: _filled(value, values) for name, value in {**part.every, **own}.items()}
        return found, frozenset(part.not_others if rank else ())


def _filled(value: Any, values: Mapping[str, int]) -> Any:
    """A number where the value is one placeholder of ours; other texts are the launcher's to fill."""
    return values[value[1:-1]] if isinstance(value, str) and value[1:-1] in values else value


def _on(value: Any) -> bool:
    return value is not None and str(value).lower() not in ("false", "0")
