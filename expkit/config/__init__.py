"""From a command line to a config that can be run, or to everything that is wrong with it.

`validation.check` is the way in: it composes the config with Hydra and checks it against `schema`
and `rules` before a framework is imported. `targets` finds and checks what the ``_target_`` keys
name. `help` prints what there is without importing Hydra.
"""
