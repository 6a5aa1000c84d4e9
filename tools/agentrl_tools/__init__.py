"""agentrl_tools: tools an environment can offer a model. Imports agentrl_sandbox and agentrl.{types, errors, env}, nothing else of ours."""
