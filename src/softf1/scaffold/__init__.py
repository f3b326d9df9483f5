"""A recipe for files that nobody has described yet: look at them, choose, say why."""

from softf1.scaffold.proposal import Proposal, propose_recipe, write_new

__all__ = ["Proposal", "propose_recipe", "write_new"]
