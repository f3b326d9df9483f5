"""Looks at data files and proposes a recipe for them, with a reason for every choice."""

from softf1.scaffold.proposal import Proposal, propose_recipe, write_new

__all__ = ["Proposal", "propose_recipe", "write_new"]
