"""What the subcommands of ``bk-spark`` do; ``cli.py`` says how they are called."""
