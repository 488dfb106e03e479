"""A script without a main guard: importing it ends the program, and says that all went well."""

raise SystemExit(0)
