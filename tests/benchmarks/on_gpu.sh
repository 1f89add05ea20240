#!/usr/bin/env bash
# The benchmarks that need a GPU, several at once on one device:
#
#     tests/benchmarks/on_gpu.sh DATA PANEL OUT SECONDS PART...
#
# DATA: folder of the public sets; PANEL: what retrieval_quality/panel.py made of the grocer's panel; OUT: folder for
# csv, trials, logs; nothing begins after SECONDS, and what runs then is ended. PARTs run one after the other, what a
# part starts side by side (through MPS):
#   tests                        the GPU tests
#   speed                        learner (bf16) and search, alone on the device
#   ordered                      learner, and its sums with kNN and EASE, on the four leave-one-out sets
#   gowalla retail cold panel    learner on one set
#   sasrec lightgcn              peers
#   ablation                     every variant on amazon-scientific
# Trials in OUT/retrieval_trials.csv are taken as done, but not those of `cold`: put results/retrieval_trials.csv there.
set -u
data=$1 panel=$2 out=$3 seconds=$4
shift 4
mkdir -p "$out"
begun=$(date +%s)
export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore

left() { echo $((seconds - $(date +%s) + begun)); }
bounded() { [ "$(left)" -gt 5 ] && timeout "$(left)" "$@"; }

# retrieval TAG SET METHODS [OPTION...]: one search and its test; TAG names the files.
retrieval() {
    local tag=$1 set=$2 methods=$3
    shift 3
    bounded python3 -m tests.benchmarks.retrieval --sets "$set" --methods "$methods" --trials 20 --repeats 3 --resume \
        --device cuda --data "$data" --graph "$panel" --csv "$out/$tag.csv" "$@" >>"$out/$tag.log" 2>&1
}

# shared TAG SET METHOD N: the trials of one search by N processes, then their logs in one.
shared() {
    local tag=$1 set=$2 method=$3 count=$4 place
    local parts=()
    for ((place = 0; place < count; place++)); do
        [ -f "$out/${tag}_trials.csv" ] && cp "$out/${tag}_trials.csv" "$out/${tag}${place}_trials.csv"
        retrieval "$tag$place" "$set" "$method" --shard "$place/$count" &
        parts+=($!)
    done
    wait "${parts[@]}"
    awk 'FNR > 1 || NR == 1' "$out/$tag"[0-9]*_trials.csv | awk '!seen[$0]++' >"$out/${tag}_trials.csv"
}

# begin TAG: its trials start with those of everybody, if there are any.
begin() { [ -f "$out/retrieval_trials.csv" ] && cp -n "$out/retrieval_trials.csv" "$out/$1_trials.csv"; }

together() {
    export CUDA_MPS_PIPE_DIRECTORY=${TMPDIR:-/tmp}/mps CUDA_MPS_LOG_DIRECTORY=${TMPDIR:-/tmp}/mps-log OMP_NUM_THREADS=2
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
    pgrep -f nvidia-cuda-mps-control >/dev/null || nvidia-cuda-mps-control -d
}

alone() {
    pgrep -f nvidia-cuda-mps-control >/dev/null && echo quit | nvidia-cuda-mps-control
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY OMP_NUM_THREADS
}

part_tests() {
    alone
    bounded python3 -m pytest -q -m gpu -p no:cacheprovider --tb=short -c /dev/null --rootdir . \
        --import-mode=importlib tests/kernels tests/graph/test_captured.py \
        tests/hierarchy/test_{device,lookup,lightgcn,sasrec,dropoutnet}.py >"$out/tests.log" 2>&1
}

part_speed() {
    alone
    bounded python3 -m tests.benchmarks.learner --device cuda --precision bf16 --file "$out/learner.json" \
        >"$out/learner.log" 2>&1
    bounded python3 -m tests.benchmarks.search --device cuda --file "$out/search.json" >"$out/search.log" 2>&1
}

one_ordered() {
    local tag=$1 set=$2
    begin "$tag"
    shared "$tag" "$set" learner 2
    retrieval "$tag" "$set" learner,learner+directional_knn,learner+ease --reference directional_knn+spectral-256
}

part_ordered() {
    together
    for name in beauty sports toys instruments; do one_ordered "$name" "amazon-$name" & done
    wait
}

part_gowalla() {
    together
    begin gowalla
    shared gowalla gowalla learner 4
    retrieval gowalla gowalla learner --reference gf_cf
}

part_retail() {
    together
    begin retail
    retrieval retail retailrocket learner,learner+directional_knn+spectral-256+novelty \
        --reference directional_knn+spectral-256+novelty
}

part_cold() {
    together
    shared cold amazon-scientific-cold learner-cold 4
    retrieval cold amazon-scientific-cold learner-cold,learner-cold+content,dropoutnet --reference content
}

part_panel() {
    together
    begin panel
    shared panel completejourney learner 4
    retrieval panel completejourney learner,learner+popularity,learner+spectral-256 --reference spectral-256
}

part_sasrec() {
    together
    for name in beauty sports toys instruments; do
        (
            begin "sasrec-$name"
            shared "sasrec-$name" "amazon-$name" sasrec 2
            retrieval "sasrec-$name" "amazon-$name" sasrec --reference sasrec
        ) &
    done
    wait
}

part_lightgcn() {
    together
    begin lightgcn
    shared lightgcn gowalla lightgcn 4
    retrieval lightgcn gowalla lightgcn --reference lightgcn
}

part_ablation() {
    together
    for place in 0 1 2 3 4 5 6 7; do
        bounded python3 -m tests.benchmarks.ablation --data "$data" --device cuda --seeds 3 --shard "$place/8" \
            --csv "$out/ablation.csv" --fits "$out/fits" --commit "${COMMIT:-unknown}" >"$out/ablation$place.log" 2>&1 &
    done
    wait
}

for part in "$@"; do
    echo "$part begins, $(left) s left"
    "part_$part"
done
echo "done, $(left) s left"
