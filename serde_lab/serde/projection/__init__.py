"""Records of one schema as records of another: the plan, and how columns and values follow it."""

from serde_lab.serde.projection.plan import Change, Projection, TargetColumn

__all__ = ["Change", "Projection", "TargetColumn"]
