"""evoseek: language-model search agents that teach themselves.

The public records live in `evoseek.types`, what can be injected in `evoseek.protocols`, what can go wrong in
`evoseek.errors`. Importing this package loads nothing heavy (no torch).
"""

__version__ = "0.1.0"
