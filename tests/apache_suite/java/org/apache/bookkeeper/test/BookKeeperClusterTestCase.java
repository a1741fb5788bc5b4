package org.apache.bookkeeper.test;

import static org.junit.Assert.assertFalse;

import apachesuite.ExternalBookie;
import apachesuite.OwnBookie;
import apachesuite.TestedBookie;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.client.BookKeeperTestClient;
import org.apache.bookkeeper.common.allocator.PoolingPolicy;
import org.apache.bookkeeper.conf.AbstractConfiguration;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.conf.TestBKConfiguration;
import org.apache.bookkeeper.meta.zk.ZKMetadataDriverBase;
import org.apache.bookkeeper.metastore.InMemoryMetaStore;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.replication.Auditor;
import org.apache.bookkeeper.replication.AutoRecoveryMain;
import org.apache.bookkeeper.replication.ReplicationWorker;
import org.apache.bookkeeper.stats.ThreadRegistry;
import org.apache.bookkeeper.util.PortManager;
import org.apache.zookeeper.ZooKeeper;
import org.junit.After;
import org.junit.Before;
import org.junit.Rule;
import org.junit.rules.TestName;
import org.junit.rules.Timeout;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A ZooKeeper in this JVM, and bookies that are processes of their own.
 *
 * <p>It stands before Apache's class of this name on the class path and has the members that Apache's compiled tests use.
 * What they take for a bookie's objects are stand-ins, except where a test brings a bookie of its own.
 */
public abstract class BookKeeperClusterTestCase {
    static final Logger LOG = LoggerFactory.getLogger(BookKeeperClusterTestCase.class);

    private static final int DEFAULT_TIMEOUT_S = 120;
    private static final int REGISTERED_S = 180;

    /** A test's time-out counts the start of its bookies, and processes start slower than objects. */
    private static final int TIMEOUT_FACTOR = Integer.getInteger("apachesuite.timeoutFactor", 3);

    /** The client's list of bookies must have lost a bookie before the bookie is waited for again. */
    private static final long BETWEEN_STOP_AND_START_MS = 1000;

    @Rule
    public final TestName runtime = new TestName();

    @Rule
    public final Timeout globalTimeout;

    protected final ZooKeeperCluster zkUtil;
    protected ZooKeeper zkc;
    protected String metadataServiceUri;

    protected final TmpDirs tmpDirs = new TmpDirs();
    protected final List<ServerTester> servers = new LinkedList<>();

    protected int numBookies;
    protected BookKeeperTestClient bkc;
    protected boolean useUUIDasBookieId = true;

    protected final ServerConfiguration baseConf = TestBKConfiguration.newServerConfiguration();
    protected final ClientConfiguration baseClientConf = TestBKConfiguration.newClientConfiguration();

    private boolean autoRecoveryEnabled;

    SynchronousQueue<Throwable> asyncExceptions = new SynchronousQueue<>();

    public BookKeeperClusterTestCase(int numBookies) {
        this(numBookies, DEFAULT_TIMEOUT_S);
    }

    public BookKeeperClusterTestCase(int numBookies, int testTimeoutSecs) {
        this(numBookies, 1, testTimeoutSecs);
    }

    public BookKeeperClusterTestCase(int numBookies, int numOfZKNodes, int testTimeoutSecs) {
        this.numBookies = numBookies;
        globalTimeout = Timeout.seconds((long) testTimeoutSecs * TIMEOUT_FACTOR);
        try {
            zkUtil = numOfZKNodes == 1 ? new ZooKeeperUtil() : new ZooKeeperClusterUtil(numOfZKNodes);
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    protected void captureThrowable(Runnable action) {
        try {
            action.run();
        } catch (Throwable problem) {
            LOG.error("An action of the test failed", problem);
            asyncExceptions.add(problem);
        }
    }

    // Set up and tear down

    @Before
    public void setUp() throws Exception {
        setUp("/ledgers");
    }

    protected void setUp(String ledgersRootPath) throws Exception {
        ExternalBookie.killAll();
        InMemoryMetaStore.reset();
        setMetastoreImplClass(baseConf);
        setMetastoreImplClass(baseClientConf);
        startZKCluster();
        metadataServiceUri = getMetadataServiceUri(ledgersRootPath);
        startBKCluster(metadataServiceUri);
    }

    @After
    public void tearDown() throws Exception {
        assertFalse("an action in the background failed", asyncExceptions.iterator().hasNext());
        List<Exception> problems = new ArrayList<>();
        attempt(this::stopBKCluster, problems);
        attempt(this::stopZKCluster, problems);
        attempt(tmpDirs::cleanup, problems);
        if (!problems.isEmpty()) {
            throw problems.get(problems.size() - 1);
        }
    }

    @After
    public void clearMetricsThreadRegistry() throws Exception {
        ThreadRegistry.clear();
    }

    private interface Step {
        void run() throws Exception;
    }

    private static void attempt(Step step, List<Exception> problems) {
        try {
            step.run();
        } catch (Exception problem) {
            LOG.error("A step of the tear-down failed", problem);
            problems.add(problem);
        }
    }

    protected void startZKCluster() throws Exception {
        zkUtil.startCluster();
        zkc = zkUtil.getZooKeeperClient();
    }

    protected void stopZKCluster() throws Exception {
        zkUtil.killCluster();
    }

    protected void startBKCluster(String metadataServiceUri) throws Exception {
        baseConf.setMetadataServiceUri(metadataServiceUri);
        baseClientConf.setMetadataServiceUri(metadataServiceUri);
        baseClientConf.setAllocatorPoolingPolicy(PoolingPolicy.UnpooledHeap);
        if (numBookies > 0) {
            bkc = newClient();
        }
        List<ServerConfiguration> confs = new ArrayList<>();
        for (int i = 0; i < numBookies; i++) {
            confs.add(newServerConfiguration());
        }
        startAndAddBookies(confs);
    }

    protected void stopBKCluster() throws Exception {
        if (bkc != null) {
            bkc.close();
        }
        stopServers();
    }

    protected void stopAllBookies() throws Exception {
        stopAllBookies(true);
    }

    protected void stopAllBookies(boolean shutdownClient) throws Exception {
        stopServers();
        if (shutdownClient && bkc != null) {
            bkc.close();
            bkc = null;
        }
    }

    private void stopServers() throws Exception {
        stopReplicationService();
        servers.forEach(tester -> tester.bookie.askToEnd());
        for (ServerTester tester : servers) {
            tester.shutdown();
        }
        servers.clear();
    }

    private BookKeeperTestClient newClient() throws Exception {
        return new BookKeeperTestClient(baseClientConf, new TestStatsProvider());
    }

    // Settings

    public void setMetastoreImplClass(AbstractConfiguration conf) {
        conf.setMetastoreImplClass(InMemoryMetaStore.class.getName());
    }

    protected String getMetadataServiceUri(String ledgersRootPath) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath);
    }

    protected String newMetadataServiceUri(String ledgersRootPath) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath);
    }

    protected String newMetadataServiceUri(String ledgersRootPath, String type) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath, type);
    }

    protected ClientConfiguration newClientConfiguration() {
        return new ClientConfiguration(baseClientConf);
    }

    protected ServerConfiguration newServerConfiguration() throws Exception {
        File directory = tmpDirs.createNew("bookie", "test");
        boolean anyPort = baseConf.getAllowEphemeralPorts() && !baseConf.isEnableLocalTransport();
        return newServerConfiguration(anyPort ? 0 : PortManager.nextFreePort(), directory, new File[] {directory});
    }

    protected ServerConfiguration newServerConfiguration(int port, File journalDir, File[] ledgerDirs) {
        ServerConfiguration conf = new ServerConfiguration(baseConf);
        conf.setBookiePort(port);
        conf.setJournalDirName(journalDir.getPath());
        conf.setLedgerDirNames(Arrays.stream(ledgerDirs).map(File::getPath).toArray(String[]::new));
        conf.setEnableTaskExecutionStats(true);
        conf.setAllocatorPoolingPolicy(PoolingPolicy.UnpooledHeap);
        return conf;
    }

    // What is there

    public BookieId getBookie(int index) throws Exception {
        return servers.get(index).bookie.bookieId();
    }

    protected BookieId addressByIndex(int index) throws Exception {
        return getBookie(index);
    }

    protected List<BookieId> bookieAddresses() throws Exception {
        return servers.stream().map(tester -> tester.bookie.bookieId()).collect(Collectors.toList());
    }

    protected BookieServer serverByIndex(int index) throws Exception {
        return servers.get(index).getServer();
    }

    protected ServerConfiguration confByIndex(int index) throws Exception {
        return servers.get(index).getConfiguration();
    }

    public ServerConfiguration getBkConf(BookieId addr) throws Exception {
        return byId(addr).orElseThrow().getConfiguration();
    }

    protected int indexOfServer(BookieServer server) throws Exception {
        return servers.stream().map(ServerTester::getServer).collect(Collectors.toList()).indexOf(server);
    }

    protected int lastBookieIndex() {
        return servers.size() - 1;
    }

    protected int bookieCount() {
        return servers.size();
    }

    protected List<File> bookieLedgerDirs() throws Exception {
        return directories(ServerConfiguration::getLedgerDirs);
    }

    protected List<File> bookieJournalDirs() throws Exception {
        return directories(ServerConfiguration::getJournalDirs);
    }

    public boolean isCreatedFromIp(BookieId bookieId) {
        BookieSocketAddress resolved = bkc.getBookieAddressResolver().resolve(bookieId);
        return resolved.getSocketAddress().toString().startsWith("/");
    }

    public void resetBookieOpLoggers() {
        throw ownMetrics();
    }

    public TestStatsProvider getStatsProvider(BookieId addr) throws java.net.UnknownHostException {
        throw ownMetrics();
    }

    public TestStatsProvider getStatsProvider(int index) throws Exception {
        throw ownMetrics();
    }

    private static RuntimeException ownMetrics() {
        return new UnsupportedOperationException("an external bookie has no metrics in this JVM");
    }

    private List<File> directories(Function<ServerConfiguration, File[]> which) {
        return servers.stream()
            .flatMap(tester -> Stream.of(which.apply(tester.getConfiguration())))
            .collect(Collectors.toList());
    }

    private Optional<ServerTester> byId(BookieId bookieId) {
        return servers.stream().filter(tester -> tester.bookie.bookieId().equals(bookieId)).findFirst();
    }

    private ServerTester known(BookieId bookieId) throws IOException {
        return byId(bookieId).orElseThrow(() -> new IOException("there is no bookie " + bookieId));
    }

    // Start

    public int startNewBookie() throws Exception {
        return startNewBookieAndReturnAddress().getPort();
    }

    public BookieSocketAddress startNewBookieAndReturnAddress() throws Exception {
        return startAndAddBookie(newServerConfiguration()).getAddress();
    }

    public BookieId startNewBookieAndReturnBookieId() throws Exception {
        return startAndAddBookie(newServerConfiguration()).bookie.bookieId();
    }

    protected ServerTester startAndAddBookie(ServerConfiguration conf) throws Exception {
        ServerTester tester = startBookie(conf);
        servers.add(tester);
        return tester;
    }

    protected ServerTester startAndAddBookie(ServerConfiguration conf, Bookie bookie) throws Exception {
        ServerTester tester = startBookie(conf, bookie);
        servers.add(tester);
        return tester;
    }

    protected ServerTester startBookie(ServerConfiguration conf) throws Exception {
        ServerTester tester = new ServerTester(conf);
        start(List.of(tester));
        return tester;
    }

    protected ServerTester startBookie(ServerConfiguration conf, Bookie bookie) throws Exception {
        ServerTester tester = new ServerTester(conf, bookie);
        start(List.of(tester));
        return tester;
    }

    private void startAndAddBookies(List<ServerConfiguration> confs) throws Exception {
        List<ServerTester> testers = new ArrayList<>();
        for (ServerConfiguration conf : confs) {
            testers.add(new ServerTester(conf));
        }
        start(testers);
        servers.addAll(testers);
    }

    /** Start them at the same time: most of what a start takes is waiting. */
    private void start(List<ServerTester> testers) throws Exception {
        if (bkc == null && !testers.isEmpty()) {
            bkc = newClient();
        }
        try {
            List<Future<?>> listed = new ArrayList<>();
            for (ServerTester tester : testers) {
                listed.add(awaitedInList(tester));
                tester.bookie.launch();
            }
            for (int i = 0; i < testers.size(); i++) {
                awaitStarted(testers.get(i), listed.get(i));
            }
        } catch (Exception problem) {
            for (ServerTester tester : testers) {
                tester.shutdown();
            }
            throw problem;
        }
    }

    private Future<?> awaitedInList(ServerTester tester) throws Exception {
        BookieId bookieId = tester.bookie.bookieId();
        boolean readOnly = tester.getConfiguration().isForceReadOnlyBookie();
        return readOnly ? bkc.waitForReadOnlyBookie(bookieId) : bkc.waitForWritableBookie(bookieId);
    }

    private void awaitStarted(ServerTester tester, Future<?> listed) throws Exception {
        tester.bookie.awaitListening();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(REGISTERED_S);
        while (true) {
            try {
                listed.get(100, TimeUnit.MILLISECONDS);
                break;
            } catch (TimeoutException notYet) {
                tester.bookie.checkAlive();
                if (System.nanoTime() > deadline) {
                    throw notYet;
                }
            }
        }
        if (isAutoRecoveryEnabled()) {
            tester.startAutoRecovery();
        }
    }

    public void restartBookies() throws Exception {
        restartBookies(conf -> conf);
    }

    public void restartBookies(Function<ServerConfiguration, ServerConfiguration> reconfFunction) throws Exception {
        List<ServerConfiguration> confs =
            servers.stream().map(ServerTester::getConfiguration).collect(Collectors.toList());
        stopServers();
        Thread.sleep(BETWEEN_STOP_AND_START_MS);
        startAndAddBookies(confs.stream().map(reconfFunction).collect(Collectors.toList()));
    }

    public void restartBookie(BookieId addr) throws Exception {
        known(addr);
        ServerConfiguration conf = killBookie(addr);
        Thread.sleep(BETWEEN_STOP_AND_START_MS);
        startAndAddBookie(conf);
    }

    // Stop, suspend, make read-only

    /** Returns null if there is no such bookie. */
    public ServerConfiguration killBookie(BookieId addr) throws Exception {
        Optional<ServerTester> tester = byId(addr);
        return tester.isPresent() ? killBookie(servers.indexOf(tester.get())) : null;
    }

    public ServerConfiguration killBookie(int index) throws Exception {
        ServerTester tester = servers.remove(index);
        tester.shutdown();
        return tester.getConfiguration();
    }

    public ServerConfiguration killBookieAndWaitForZK(int index) throws Exception {
        ServerTester tester = servers.get(index);
        ServerConfiguration conf = killBookie(index);
        while (zkc.exists(tester.registration(""), false) != null) {
            Thread.sleep(100);
        }
        return conf;
    }

    public void setBookieToReadOnly(BookieId addr) throws Exception {
        Optional<ServerTester> tester = byId(addr);
        if (tester.isPresent()) {
            tester.get().bookie.setReadOnly(true);
        }
    }

    /** The latch that is returned falls once the bookie sleeps. */
    public CountDownLatch sleepBookie(BookieId addr, final int seconds) throws Exception {
        CountDownLatch asleep = new CountDownLatch(1);
        sleep(known(addr).bookie, asleep, () -> TimeUnit.SECONDS.sleep(seconds));
        return asleep;
    }

    /** Returns once the bookie sleeps; it does so until {@code l} falls. */
    public void sleepBookie(BookieId addr, final CountDownLatch l) throws InterruptedException, IOException {
        CountDownLatch asleep = new CountDownLatch(1);
        sleepBookie(addr, l, asleep);
        asleep.await();
    }

    public void sleepBookie(BookieId addr, final CountDownLatch l, final CountDownLatch suspendLatch)
            throws InterruptedException, IOException {
        sleep(known(addr).bookie, suspendLatch, l::await);
    }

    private static void sleep(TestedBookie bookie, CountDownLatch asleep, Step untilAwake) {
        Thread sleeper = new Thread(() -> {
            bookie.suspend();
            if (asleep != null) {
                asleep.countDown();
            }
            try {
                untilAwake.run();
            } catch (Exception problem) {
                LOG.error("Bookie {} is woken before its time", bookie.bookieId(), problem);
            }
            bookie.resume();
        });
        sleeper.setDaemon(true);
        sleeper.start();
    }

    // Auto recovery, which is a client of the bookies and runs in this JVM

    public void setAutoRecoveryEnabled(boolean isAutoRecoveryEnabled) {
        autoRecoveryEnabled = isAutoRecoveryEnabled;
    }

    public boolean isAutoRecoveryEnabled() {
        return autoRecoveryEnabled;
    }

    public void startReplicationService() throws Exception {
        for (ServerTester tester : servers) {
            tester.startAutoRecovery();
        }
    }

    public void stopReplicationService() throws Exception {
        servers.forEach(ServerTester::stopAutoRecovery);
    }

    public Auditor getAuditor(int timeout, TimeUnit unit) throws Exception {
        long deadline = System.nanoTime() + unit.toNanos(timeout);
        while (System.nanoTime() < deadline) {
            for (ServerTester tester : servers) {
                if (tester.isAuditing()) {
                    // Its death watcher, which looks at intervals, ends one that has lost its session: is it still there then?
                    Thread.sleep(tester.getConfiguration().getDeathWatchInterval() + 1000L);
                    if (tester.isAuditing()) {
                        return tester.getAuditor();
                    }
                }
            }
            Thread.sleep(100);
        }
        throw new Exception("No auditor found");
    }

    /** One bookie, and the auto recovery that stands beside it. */
    public class ServerTester {
        private final TestedBookie bookie;
        private AutoRecoveryMain autoRecovery;

        public ServerTester(ServerConfiguration conf) throws Exception {
            bookie = new ExternalBookie(conf, this::isReadOnly);
        }

        public ServerTester(ServerConfiguration conf, Bookie b) throws Exception {
            bookie = new OwnBookie(conf, b);
        }

        public void startAutoRecovery() throws Exception {
            autoRecovery = new AutoRecoveryMain(bookie.configuration());
            autoRecovery.start();
        }

        public void stopAutoRecovery() {
            if (autoRecovery != null) {
                autoRecovery.shutdown();
            }
        }

        public Auditor getAuditor() {
            return autoRecovery == null ? null : autoRecovery.getAuditor();
        }

        public ReplicationWorker getReplicationWorker() {
            return autoRecovery == null ? null : autoRecovery.getReplicationWorker();
        }

        public ServerConfiguration getConfiguration() {
            return bookie.configuration();
        }

        public BookieServer getServer() {
            return bookie.server();
        }

        public TestStatsProvider getStatsProvider() {
            throw ownMetrics();
        }

        public BookieSocketAddress getAddress() {
            return bookie.address();
        }

        public void shutdown() throws Exception {
            bookie.shutdown();
            stopAutoRecovery();
        }

        private boolean isAuditing() {
            Auditor auditor = getAuditor();
            ReplicationWorker worker = getReplicationWorker();
            return auditor != null && auditor.isRunning() && worker != null && worker.isRunning();
        }

        private boolean isReadOnly() throws Exception {
            return zkc.exists(registration("readonly/"), false) != null && zkc.exists(registration(""), false) == null;
        }

        /** The path of its znode in ZooKeeper; {@code list} is empty or {@code readonly/}. */
        private String registration(String list) {
            String root = ZKMetadataDriverBase.resolveZkLedgersRootPath(bookie.configuration());
            return root + "/available/" + list + bookie.bookieId();
        }
    }
}
