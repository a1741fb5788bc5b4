import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.function.LongFunction;
import java.util.function.UnaryOperator;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.GenericRecordBuilder;
import org.apache.pulsar.client.api.schema.GenericSchema;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/** All forms in which Pulsar's client writes messages. */
final class Forms {
    static List<Form> all() {
        List<Form> forms = new ArrayList<>();
        int most = 3;
        for (CompressionType codec : CompressionType.values()) {
            String name = codec.name().toLowerCase();
            int messages = most;
            forms.add(new Bytes("plain-" + name, 1, 10, builder -> builder.compressionType(codec)));
            forms.add(new Bytes("batched-" + name, 1, 100, builder -> batched(builder, messages).compressionType(codec)));
            forms.add(new Chunked("chunked-" + name, codec));
            most *= 6;
        }
        forms.add(new Bytes("keyed", 1, 60, builder -> batched(builder, 50)
                .batcherBuilder(BatcherBuilder.KEY_BASED).compressionType(CompressionType.LZ4)));
        forms.add(new Bytes("partitioned", 4, 313, builder -> batched(builder, 200).compressionType(CompressionType.ZSTD)));
        forms.add(new Delayed());
        forms.add(new Sequenced());
        forms.add(new InTransactions("transactions", 1, false));
        forms.add(new InTransactions("transactions-batched", 2, true));
        forms.add(new Encrypted());
        forms.add(new Typed<>("int32", Schema.INT32, number -> (int) number));
        forms.add(new Typed<>("string", Schema.STRING, number -> "text ü " + number));
        forms.add(new Typed<>("json", Schema.JSON(Row.class), Row::new));
        forms.add(new Evolved());
        forms.add(new Typed<>("inline", pairs(KeyValueEncodingType.INLINE),
                number -> new KeyValue<>("k" + number, (int) number)));
        forms.add(new Typed<>("separated", pairs(KeyValueEncodingType.SEPARATED),
                number -> new KeyValue<>("k" + number, number % 5 == 0 ? null : (Integer) (int) number)));
        return forms;
    }

    private static ProducerBuilder<byte[]> batched(ProducerBuilder<byte[]> builder, int messages) {
        return builder.enableBatching(true).batchingMaxMessages(messages).batchingMaxPublishDelay(20, TimeUnit.MILLISECONDS);
    }

    private static Schema<KeyValue<String, Integer>> pairs(KeyValueEncodingType encoding) {
        return Schema.KeyValue(Schema.STRING, Schema.INT32, encoding);
    }

    /** Bytes with every mixture of what else a message can have. */
    private static final class Bytes extends Form {
        private final UnaryOperator<ProducerBuilder<byte[]>> settings;
        private Producer<byte[]> producer;

        Bytes(String name, int partitions, int share, UnaryOperator<ProducerBuilder<byte[]>> settings) {
            super(name, partitions, share);
            this.settings = settings;
        }

        @Override
        void open(PulsarClient client) throws Exception {
            producer = create(settings.apply(builder(client, Schema.BYTES)));
        }

        @Override
        void send(long number) {
            count(Content.fill(producer.newMessage(), number).sendAsync());
        }
    }

    /** Two producers, whose chunks come between each other's; some values are small enough for one. */
    private static final class Chunked extends Form {
        private static final int CHUNK_BYTES = 4096;
        private static final int MOST_CHUNKS = 9;
        private static final int HUGE_BYTES = 12 << 20;

        private final CompressionType codec;
        private final List<Producer<byte[]>> two = new ArrayList<>();

        Chunked(String name, CompressionType codec) {
            super(name, 1, 2);
            this.codec = codec;
        }

        @Override
        void open(PulsarClient client) throws Exception {
            for (int place = 0; place < 2; place++) {
                two.add(create(builder(client, Schema.BYTES)
                        .enableChunking(true).chunkMaxMessageSize(CHUNK_BYTES).compressionType(codec)));
            }
            // Above the largest message of the broker's default.
            try (Producer<byte[]> huge =
                    builder(client, Schema.BYTES).enableChunking(true).compressionType(codec).create()) {
                count(huge.newMessage().value(noise(0, HUGE_BYTES)).sendAsync()).get();
            }
        }

        @Override
        void send(long number) {
            int size = (int) (number * 7919 % (CHUNK_BYTES * MOST_CHUNKS));
            byte[] value = number % 3 == 0 ? Content.letters(number, size) : noise(number, size);
            count(Content.fill(two.get((int) (number % 2)).newMessage(), number).value(value).sendAsync());
        }

        private static byte[] noise(long seed, int size) {
            byte[] all = new byte[size];
            new Random(seed).nextBytes(all);
            return all;
        }
    }

    private static final class Delayed extends Form {
        private Producer<byte[]> producer;

        Delayed() {
            super("delayed", 1, 10);
        }

        @Override
        void open(PulsarClient client) throws Exception {
            producer = create(batched(builder(client, Schema.BYTES), 10));
        }

        @Override
        void send(long number) {
            count(Content.fill(producer.newMessage(), number).deliverAfter(number % 3 * 1800, TimeUnit.SECONDS).sendAsync());
        }
    }

    /** The program gives sequence ids, with gaps. */
    private static final class Sequenced extends Form {
        private final List<Producer<byte[]>> two = new ArrayList<>();

        Sequenced() {
            super("sequenced", 1, 10);
        }

        @Override
        void open(PulsarClient client) throws Exception {
            two.add(create(builder(client, Schema.BYTES).initialSequenceId(1L << 40)));
            two.add(create(batched(builder(client, Schema.BYTES), 30)));
        }

        @Override
        void send(long number) {
            long sequence = (number % 2 == 0 ? 1L << 41 : 0) + number * 7;
            count(Content.fill(two.get((int) (number % 2)).newMessage(), number).sequenceId(sequence).sendAsync());
        }
    }

    /**
     * Three are open at a time, and messages of none come between theirs. Two of five are aborted. What is in no transaction
     * has a producer of its own: a broker may acknowledge it before what is in one, and a producer takes that for an error.
     */
    private static final class InTransactions extends Form {
        private static final int OPEN = 3;
        private static final int SIZE = 60;

        private final boolean isBatched;
        private final Transaction[] open = new Transaction[OPEN];
        private final long[] sent = new long[OPEN];
        private PulsarClient client;
        private Producer<byte[]> producer;
        private Producer<byte[]> other;
        private long ended;

        InTransactions(String name, int partitions, boolean isBatched) {
            super(name, partitions, 15);
            this.isBatched = isBatched;
        }

        @Override
        void open(PulsarClient client) throws Exception {
            this.client = client;
            ProducerBuilder<byte[]> builder = builder(client, Schema.BYTES);
            producer = create(isBatched ? batched(builder, 40) : builder);
            other = create(builder);
        }

        @Override
        void send(long number) throws Exception {
            int place = (int) (number * 31 % (OPEN + 1));
            if (place == OPEN) {
                count(Content.fill(other.newMessage(), number).sendAsync());
                return;
            }
            if (open[place] == null) {
                open[place] = client.newTransaction().withTransactionTimeout(10, TimeUnit.MINUTES).build().get();
            }
            count(Content.fill(producer.newMessage(open[place]), number).sendAsync());
            sent[place]++;
            if (sent[place] >= 1 + ended * 17 % SIZE) {
                end(place);
            }
        }

        @Override
        void end() throws Exception {
            for (int place = 0; place < OPEN; place++) {
                if (open[place] != null) {
                    end(place);
                }
            }
        }

        private void end(int place) throws Exception {
            producer.flush();
            if (ended % 5 < 2) {
                open[place].abort().get();
                unseen.addAndGet(sent[place]);
            } else {
                open[place].commit().get();
            }
            open[place] = null;
            sent[place] = 0;
            ended++;
        }
    }

    /** Every third message alone is not encrypted. */
    private static final class Encrypted extends Form {
        private final List<Producer<byte[]>> three = new ArrayList<>();

        Encrypted() {
            super("encrypted", 1, 5);
        }

        @Override
        void open(PulsarClient client) throws Exception {
            KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
            generator.initialize(2048);
            Keys keys = new Keys(generator.generateKeyPair());
            three.add(create(builder(client, Schema.BYTES)));
            three.add(create(builder(client, Schema.BYTES).addEncryptionKey("key").cryptoKeyReader(keys)));
            three.add(create(batched(builder(client, Schema.BYTES), 5).addEncryptionKey("key").cryptoKeyReader(keys)
                    .compressionType(CompressionType.LZ4)));
        }

        @Override
        void send(long number) {
            int place = (int) (number % three.size());
            unseen.addAndGet(place == 0 ? 0 : 1);
            count(Content.fill(three.get(place).newMessage(), number).sendAsync());
        }
    }

    private record Keys(KeyPair pair) implements CryptoKeyReader {
        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return new EncryptionKeyInfo(pem("PUBLIC", pair.getPublic().getEncoded()), new LinkedHashMap<>());
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return new EncryptionKeyInfo(pem("PRIVATE", pair.getPrivate().getEncoded()), new LinkedHashMap<>());
        }

        private static byte[] pem(String kind, byte[] key) {
            String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(key);
            return ("-----BEGIN " + kind + " KEY-----\n" + text + "\n-----END " + kind + " KEY-----\n").getBytes();
        }
    }

    private static final class Typed<T> extends Form {
        private final Schema<T> schema;
        private final LongFunction<T> value;
        private Producer<T> producer;

        Typed(String name, Schema<T> schema, LongFunction<T> value) {
            super("typed-" + name, 1, 2);
            this.schema = schema;
            this.value = value;
        }

        @Override
        void open(PulsarClient client) throws Exception {
            producer = create(builder(client, schema).enableBatching(true));
        }

        @Override
        void send(long number) {
            count(producer.newMessage().value(value.apply(number)).sendAsync());
        }

        @Override
        void mark(PulsarClient client) throws Exception {
            mark(client.newProducer(schema).topic(topic), value.apply(1));
        }
    }

    /** Avro, whose second version has one more column. Both are written side by side. */
    private static final class Evolved extends Form {
        private static final String ID_AND_NAME =
                "{'name': 'id', 'type': 'long'}, {'name': 'name', 'type': ['null', 'string'], 'default': null}";
        private static final String PRICE = ", {'name': 'price', 'type': ['null', 'double'], 'default': null}";

        private final GenericSchema<GenericRecord> first = schema(ID_AND_NAME);
        private final GenericSchema<GenericRecord> second = schema(ID_AND_NAME + PRICE);
        private Producer<GenericRecord> firsts;
        private Producer<GenericRecord> seconds;

        Evolved() {
            super("typed-avro", 1, 2);
        }

        @Override
        void open(PulsarClient client) throws Exception {
            firsts = create(builder(client, first));
            seconds = create(builder(client, second));
        }

        @Override
        void send(long number) {
            count((number % 2 == 0 ? firsts.newMessage().value(record(first, number).build())
                    : seconds.newMessage().value(priced(number))).sendAsync());
        }

        @Override
        void mark(PulsarClient client) throws Exception {
            mark(builder(client, second), priced(1));
        }

        private GenericRecord priced(long number) {
            return record(second, number).set("price", number % 3 == 0 ? null : (Double) (number / 7.0)).build();
        }

        private static GenericRecordBuilder record(GenericSchema<GenericRecord> schema, long number) {
            return schema.newRecordBuilder().set("id", number).set("name", number % 4 == 0 ? null : "name " + number);
        }

        private static GenericSchema<GenericRecord> schema(String fields) {
            String json = "{'type': 'record', 'name': 'Row', 'namespace': 'topics', 'fields': [" + fields + "]}";
            return Schema.generic(SchemaInfo.builder()
                    .name("rows").type(SchemaType.AVRO).schema(json.replace('\'', '"').getBytes()).build());
        }
    }

    public static final class Row {
        public long id;
        public String name;

        public Row() {}

        Row(long number) {
            id = number;
            name = number % 4 == 0 ? null : "name " + number;
        }
    }

    private Forms() {}
}
