#!/usr/bin/env bash
# A run on two hosts: two network namespaces with names of their own, joined by a virtual cable. MPI talks over TCP
# between them. The checkpoints must be those of one process. Usage: two_hosts.sh [BUILD FOLDER]. Exit status 77, with
# the reason: this system does not let us make namespaces, or there is no mpirun.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
eddy="$(cd "${1:-$here/../../build/release}" && pwd)/eddy"

skip() {
  echo "SKIPPED: $*"
  exit 77
}
((EUID == 0)) || skip "only root makes network namespaces"
command -v ip >/dev/null || skip "no ip (install iproute2)"
command -v mpirun >/dev/null || skip "no mpirun (install openmpi-bin)"
"$eddy" info | grep -q '^ranks: MPI' || skip "this build has no MPI"

folder="$(mktemp -d)"
a="eddy-a-$$" b="eddy-b-$$"
cleanup() {
  ip netns del "$a" 2>/dev/null || true
  ip netns del "$b" 2>/dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT

ip netns add "$a" 2>"$folder/why" && ip netns add "$b" 2>"$folder/why" &&
  ip link add va type veth peer name vb netns "$b" 2>"$folder/why" && ip link set va netns "$a" 2>"$folder/why" ||
  skip "no network namespaces: $(cat "$folder/why")"
for side in "$a va 10.77.0.1" "$b vb 10.77.0.2"; do
  read -r space cable address <<<"$side"
  ip -n "$space" address add "$address/24" dev "$cable"
  ip -n "$space" link set "$cable" up
  ip -n "$space" link set lo up
done

# mpirun calls this in place of ssh: HOST COMMAND...
cat >"$folder/reach" <<END
#!/usr/bin/env bash
shift
exec ip netns exec $b unshare --uts bash -c 'hostname host-b; exec bash -c "\$*"' _ "\$@"
END
chmod +x "$folder/reach"

for i in $(seq 400); do echo "line $i says $((i * i % 97)) and $((i * 7 % 31))"; done >"$folder/text.txt"
train=(train --data text.txt --model.model block_recurrent --data.order stream --model.dim 16 --model.heads 2
  --model.context 16 --train.batch 8 --train.micro_batches 4 --train.accumulate 2 --train.steps 5
  --train.eval_every 0 --train.sample_tokens 0 --threads 1)
cd "$folder"
"$eddy" "${train[@]}" --run one >one.log
timeout 100 ip netns exec "$a" unshare --uts bash -c 'hostname host-a; exec "$@"' _ \
  mpirun --allow-run-as-root --host 10.77.0.1:1,10.77.0.2:1 --mca plm_rsh_agent "$folder/reach" \
  --mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
  -n 2 "$eddy" "${train[@]}" --run two >two.log 2>&1 || {
  cat two.log
  exit 1
}
grep -a -o "2 ranks share the run: rank 0 on host-a, rank 1 on host-b" two.log || {
  cat two.log
  exit 1
}
for file in model optimizer recurrent; do
  cmp "one/checkpoints/step-5/$file.safetensors" "two/checkpoints/step-5/$file.safetensors"
done
sent="$(ip -n "$b" -s -s link show vb | awk '/TX:/ { getline; print $1 }')"
least="$(grep -a -o 'sends [0-9.]* [KMG]*i*B of gradients' two.log | awk '{ print $2 $3 }' | sed 's/B$//' | numfmt --from=iec-i)"
least=$((10 * least)) # 5 steps of 2 batches
echo "two hosts: the bytes of one process; rank 1 sent $sent bytes over the cable, $((1000 * sent / least - 1000)) per mille" \
  "more than the least possible for 10 batches, $least"
