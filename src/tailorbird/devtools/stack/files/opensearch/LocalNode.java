import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.logging.LogConfigurator;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/**
 * One OpenSearch node with its HTTP transport, until SIGTERM. Java runs this file as a source. The argument is the
 * folder of opensearch.yml. The distribution's own main class loads modules from folders that Maven does not have.
 */
public final class LocalNode extends Node {
    private LocalNode(Environment environment) {
        super(environment, List.of(Netty4Plugin.class), false);
    }

    /** Starts the node, and returns when it is closed. */
    public static void main(String[] arguments) throws Exception {
        Path configuration = Path.of(arguments[0]);
        LogConfigurator.registerErrorListener();
        Settings home = Settings.builder().put("path.home", configuration).build();
        Node node = new LocalNode(
            InternalSettingsPreparer.prepareEnvironment(home, Map.of(), configuration, () -> "local"));
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
            closed.countDown();
        }));
        node.start();
        closed.await();
    }
}
