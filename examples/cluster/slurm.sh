#!/usr/bin/env bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
# Start Ray on every node of a SLURM job, and run a command of agentrl on the first of them:
#   sbatch examples/cluster/slurm.sh agentrl train --env math --out /shared/runs/math
# The folder from which it is submitted must be on a file system that the nodes share.
set -euo pipefail

JOIN_S=120
STORE_BYTES=${STORE_BYTES:-$((4 << 30))}  # of Ray's object store on each node: two buckets of weights and a batch
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}

on() { srun --overlap --nodes=1 --ntasks=1 --nodelist="$1" "${@:2}"; }
joined() { on "$head" ray status 2>/dev/null | grep -c '^ 1 node_'; }

# Every process of the cluster shows this token.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$PWD/ray-token-$SLURM_JOB_ID"
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$RAY_AUTH_TOKEN_PATH")
trap 'kill $(jobs -p) 2>/dev/null || true; rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT

address=$(on "$head" hostname --all-ip-addresses | cut -d' ' -f1)
export RAY_ADDRESS="$address:6379"
start() { on "$1" ray start --object-store-memory="$STORE_BYTES" --block "${@:2}" >/dev/null; }
start "$head" --head --node-ip-address="$address" --port=6379 --include-dashboard=false &
until [[ $(joined) -ge 1 ]]; do
  ((SECONDS < JOIN_S)) || { echo "Ray did not start on $head within $JOIN_S s" >&2; exit 1; }
  sleep 1
done
for node in "${nodes[@]:1}"; do
  start "$node" --address="$RAY_ADDRESS" &
done
until [[ $(joined) -ge ${#nodes[@]} ]]; do
  ((SECONDS < 2 * JOIN_S)) || { echo "not all of ${nodes[*]} joined Ray within $JOIN_S s" >&2; exit 1; }
  sleep 1
done

on "$head" "$@"
