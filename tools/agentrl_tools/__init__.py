"""agentrl_tools: tools an environment can offer a model.

Of ours it imports agentrl_sandbox and agentrl.{types, errors, env}, nothing else.
"""
