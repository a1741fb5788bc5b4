package chaosagent;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.conf.ClientConfiguration;

/** Settings of workload.py and plan.py that hold for all loads. Times in seconds. */
record Settings(
    @JsonProperty("add_timeout_s") double addTimeout,
    @JsonProperty("add_quorum_timeout_s") double addQuorumTimeout,
    @JsonProperty("read_timeout_s") double readTimeout,
    @JsonProperty("speculative_read_s") double speculativeRead,
    @JsonProperty("quarantine_s") double quarantine,
    @JsonProperty("quarantine_errors") int quarantineErrors,
    int[] sizes,
    @JsonProperty("max_append_bytes") long maxAppendBytes) {

    ClientConfiguration configuration(String metadataUri, boolean isVersion2) {
        ClientConfiguration made = new ClientConfiguration();
        made.setMetadataServiceUri(metadataUri);
        made.setUseV2WireProtocol(isVersion2);
        made.setAddEntryTimeout((int) addTimeout);
        made.setAddEntryQuorumTimeout((int) addQuorumTimeout);
        made.setReadEntryTimeout((int) readTimeout);
        int speculativeMs = (int) (speculativeRead * 1000);
        made.setSpeculativeReadTimeout(speculativeMs);
        made.setFirstSpeculativeReadLACTimeout(speculativeMs);
        made.setMaxSpeculativeReadLACTimeout(speculativeMs);
        made.enableBookieHealthCheck();
        made.setBookieHealthCheckInterval((int) quarantine, TimeUnit.SECONDS);
        made.setBookieErrorThresholdPerInterval(quarantineErrors);
        made.setBookieQuarantineTime((int) quarantine, TimeUnit.SECONDS);
        return made;
    }
}
