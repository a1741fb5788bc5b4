package chaosagent;

import com.fasterxml.jackson.annotation.JsonProperty;

/** What a writer does: Load of plan.py. */
record Load(
    long seed,
    int[] shape,
    @JsonProperty("digest_type") String digestType,
    @JsonProperty("size_weights") int[] sizeWeights,
    @JsonProperty("max_batch") int maxBatch,
    int depth,
    @JsonProperty("pause_s") double pauseS,
    @JsonProperty("max_bytes") long maxBytes) {
}
