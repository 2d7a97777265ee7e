"""The commands of `tamis`, a module each: `add_command(subparsers)` adds it to the parser."""
