package io.sparkevents;

import io.sparkevents.config.Settings;
import io.sparkevents.listener.ApplicationEnd;
import io.sparkevents.listener.RecordSink;
import io.sparkevents.metrics.Statistics;
import io.sparkevents.sidecar.Connection;
import io.sparkevents.sidecar.Interpreter;
import io.sparkevents.sidecar.Sidecar;
import java.io.IOException;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;

/**
 * Listener with its own queue and sidecar; one JVM can have several. A new {@link Connection} would close the previous
 * connection, because a JVM has one SparkContext at a time.
 */
final class Alone extends RecordSink implements AutoCloseable {
  final EventsListener listener;
  private final Sidecar sidecar;
  private final ProcessHandle process;

  Alone(SparkConf conf) throws Exception {
    super(Settings.read(conf, System.getenv()));
    sidecar =
        new Sidecar(
            settings,
            "benchmark",
            Interpreter.candidates(settings, conf, System.getenv()),
            queue,
            barrier,
            new Statistics());
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
  protected boolean isEnding() {
    return false;
  }

  @Override
  public void end(ApplicationEnd end) {
    throw new UnsupportedOperationException("the application of a benchmark does not end");
  }

  void signal(String name) throws IOException, InterruptedException {
    new ProcessBuilder("kill", "-" + name, String.valueOf(process.pid())).start().waitFor();
  }

  /** Verify that the queue stayed open and the first sidecar stayed alive during the measurement. */
  void checkItHasLasted() {
    if (queue.isClosed() || queue.isFinished() || !process.isAlive() || sidecar.restarts() > 0) {
      throw new IllegalStateException("the queue was closed or the sidecar was replaced during the measurement");
    }
  }

  @Override
  public void close() throws IOException, InterruptedException {
    // A stopped (SIGSTOP) sidecar does not notice that its pipe is closed. A killed sidecar would be restarted.
    signal("CONT");
    sidecar.finish();
    process.destroyForcibly();
  }
}
