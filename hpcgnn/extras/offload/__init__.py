"""Training within a memory limit, for nodes with too little memory: activations and features on the local disk
(docs/less-memory.md).
"""
