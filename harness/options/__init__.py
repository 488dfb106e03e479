"""What a user can ask for: one frozen dataclass a command, its fields declared once.

The command line and pytest's options are made from these declarations (`harness.cli.app`,
`declare.options_for_pytest`), and `declare.read` makes the typed values from texts. Nothing here
imports torch.
"""
