"""How one engine spells a topology, and how its arguments are read back.

Here ``tp`` is the number of devices of one pipeline stage of one worker, however attention is split
on them; ``dp_attention`` and ``dcp`` divide these devices and ``ep`` places experts on them
(DESIGN 5.1). Engines count in other ways, and that is what this module translates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

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


def _on(value: Any) -> bool:
    return value is not None and str(value).lower() not in ("false", "0")
