"""Serves a model on loopback in OpenAI's format. Prints its address, and ends when its input does.

usage: serve.py WEIGHTS
"""

import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 8192
params.n_parallel = 1
params.use_jinja = True
params.cpuparams.n_threads = 1
# The same words get the same answer, as far as the processor allows.
params.sampling.temp = 0.0
params.sampling.seed = 1

server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
