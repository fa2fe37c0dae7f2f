package io.sparkevents;

import static io.sparkevents.Checks.is;
import static io.sparkevents.Checks.start;

import io.sparkevents.config.Settings;
import io.sparkevents.queue.QueueConfig;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.SyncBarrier;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;

/** Tests of waits for the reporters' answers. */
final class SyncBarrierTest {
  /** At shutdown, no record is dropped while time remains, even if Spark's queue is larger than the record queue. */
  @Test
  void theEndDoesNotOverrunTheQueue() throws Exception {
    SparkConf conf = new SparkConf(false).set("spark.events.dispatcher.type", "sync");
    conf.set("spark.events.shutdown.timeout", "6s");
    RecordQueue queue = new RecordQueue(QueueConfig.of(100));
    SyncBarrier gate = new SyncBarrier(Settings.read(conf, Collections.emptyMap()), queue, () -> true);
    AtomicBoolean running = new AtomicBoolean(true);
    ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
    Thread reporter =
        start(
            wrong,
            () -> {
              // The reporter needs the same time for batches of any size.
              while (running.get()) {
                List<Record> batch = RecordQueueTest.takeAll(queue);
                Thread.sleep(20);
                if (!batch.isEmpty()) {
                  queue.acknowledge(batch.get(batch.size() - 1).seq());
                  gate.answered(batch.get(batch.size() - 1).seq());
                }
              }
            });
    for (int i = 0; i < 500; i++) {
      gate.pass(RecordQueueTest.routine());
    }
    running.set(false);
    reporter.join();
    is(queue.drops.total() + " " + wrong, "0 []");
    // Waiting for each record would take at least ten seconds; the shares of the time limit add up to 4.5 s.
    is(gate.spentAtTheEndMillis() < 9_000, true);
  }
}
