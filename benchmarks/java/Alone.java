package io.sparkevents;

import java.io.IOException;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;

/**
 * A listener, its queue and its sidecar, beside others in the same JVM. A {@link Connection} cannot be: it ends the
 * one before it, for a JVM has one SparkContext at a time.
 */
final class Alone implements Destination, AutoCloseable {
  final HandoffQueue queue;
  final EventsListener listener;
  private final SyncGate gate;
  private final Sidecar sidecar;
  private final ProcessHandle process;

  Alone(SparkConf conf) throws Exception {
    Settings settings = Settings.read(conf, System.getenv());
    queue = new HandoffQueue(settings.queueSize(), settings.synchronous());
    gate = SyncGate.of(settings, queue, () -> false);
    sidecar =
        new Sidecar(
            settings, "benchmark", Interpreter.candidates(settings, conf, System.getenv()), queue, gate, new Statistics());
    listener = new EventsListener(conf, this);
    Set<Long> others = ProcessHandle.current().children().map(ProcessHandle::pid).collect(Collectors.toSet());
    sidecar.start();
    String failure = sidecar.awaitStarted();
    if (failure != null) {
      throw new IllegalStateException(failure);
    }
    process = ProcessHandle.current().children().filter(child -> !others.contains(child.pid())).findFirst().get();
    listener.onApplicationStart(Jobs.applicationStart());
  }

  @Override
  public void hand(Record record) {
    gate.pass(record);
  }

  @Override
  public void end(ApplicationEnd end) {
    throw new UnsupportedOperationException("a benchmark's application does not end by itself");
  }

  void signal(String name) throws IOException, InterruptedException {
    new ProcessBuilder("kill", "-" + name, String.valueOf(process.pid())).start().waitFor();
  }

  /** What was measured was measured with a queue that took records, and the sidecar that it began with. */
  void checkItHasLasted() {
    if (queue.isClosed() || queue.isFinished() || !process.isAlive() || sidecar.restarts() > 0) {
      throw new IllegalStateException("it has not lasted as long as the measurement");
    }
  }

  @Override
  public void close() throws InterruptedException {
    // One that is stopped would never see that its pipe has closed.
    process.destroyForcibly();
    sidecar.finish();
  }
}
