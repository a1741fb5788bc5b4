package apachesuite;

import java.io.FileInputStream;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.util.Base64;
import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;
import org.apache.bookkeeper.conf.ServerConfiguration;

/** A bookie's keys and certificates as PEM files, whatever form the test has them in. */
final class Pem {
    private static final Base64.Encoder BASE64 = Base64.getMimeEncoder(64, new byte[] {'\n'});

    private Pem() {
    }

    /** The files' paths by what is in them: {@code key}, {@code certificate}, and {@code ca} if clients must show one. */
    static Map<String, String> files(ServerConfiguration conf, String prefix) throws Exception {
        Map<String, String> files = new TreeMap<>();
        if (conf.getTLSKeyStoreType().equals("PEM")) {
            files.put("key", conf.getTLSKeyStore());
            files.put("certificate", conf.getTLSCertificatePath());
        } else {
            KeyStore store = load(conf.getTLSKeyStoreType(), conf.getTLSKeyStore(), conf.getTLSKeyStorePasswordPath());
            String alias = Collections.list(store.aliases()).get(0);
            Key key = store.getKey(alias, password(conf.getTLSKeyStorePasswordPath()));
            files.put("key", write(prefix + "key.pem", block("PRIVATE KEY", key.getEncoded())));
            files.put("certificate", write(prefix + "certificate.pem", certificates(store)));
        }
        if (conf.getTLSClientAuthentication()) {
            files.put("ca", authorities(conf, prefix));
        }
        return files;
    }

    private static String authorities(ServerConfiguration conf, String prefix) throws Exception {
        String type = conf.getTLSTrustStoreType();
        if (type.equals("PEM")) {
            return conf.getTLSTrustStore();
        }
        KeyStore store = load(type, conf.getTLSTrustStore(), conf.getTLSTrustStorePasswordPath());
        return write(prefix + "ca.pem", certificates(store));
    }

    private static KeyStore load(String type, String path, String passwordPath) throws Exception {
        KeyStore store = KeyStore.getInstance(type);
        try (InputStream input = new FileInputStream(path)) {
            store.load(input, password(passwordPath));
        }
        return store;
    }

    private static char[] password(String path) throws Exception {
        return Files.readString(Path.of(path)).strip().toCharArray();
    }

    private static String certificates(KeyStore store) throws Exception {
        StringBuilder text = new StringBuilder();
        for (String alias : Collections.list(store.aliases())) {
            Certificate certificate = store.getCertificate(alias);
            text.append(block("CERTIFICATE", certificate.getEncoded()));
        }
        return text.toString();
    }

    private static String block(String name, byte[] content) {
        return "-----BEGIN " + name + "-----\n" + BASE64.encodeToString(content) + "\n-----END " + name + "-----\n";
    }

    private static String write(String path, String text) throws Exception {
        return Files.writeString(Path.of(path), text).toString();
    }
}
