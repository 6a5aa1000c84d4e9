"""`python -m agentrl COMMAND` is `agentrl COMMAND`."""

from agentrl.cli.main import main

raise SystemExit(main())
