package io.sparkevents;

import static io.sparkevents.Checks.is;

import io.sparkevents.listener.StreamingRecords;
import io.sparkevents.queue.QueueConfig;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RecordQueue;
import java.util.Collections;
import java.util.UUID;
import org.apache.spark.sql.streaming.SinkProgress;
import org.apache.spark.sql.streaming.SourceProgress;
import org.apache.spark.sql.streaming.StateOperatorProgress;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryProgressEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.junit.jupiter.api.Test;
import scala.Option;

/** Tests of the records of streaming queries. */
final class StreamingRecordsTest {
  private static String text(int length) {
    return String.join("", Collections.nCopies(length, "x"));
  }

  /** Returns the progress of a batch whose end offset has the given length; the other strings may be null. */
  static Record progress(StreamingRecords streams, UUID run, int length) {
    SourceProgress source = new SourceProgress(null, null, text(length), null, 1, 1, 1, Collections.emptyMap());
    return streams.of(
        new QueryProgressEvent(
            new StreamingQueryProgress(
                run, run, "clicks", "2026-01-01T00:00:00.000Z", 7, 1, Collections.emptyMap(), Collections.emptyMap(),
                new StateOperatorProgress[0], new SourceProgress[] {source}, new SinkProgress("noop"),
                Collections.emptyMap())));
  }

  /** Large progress reports and exceptions count towards the queue's limit of bytes. */
  @Test
  void largeReportsAreLimitedByBytes() throws Exception {
    StreamingRecords streams = new StreamingRecords();
    RecordQueue queue = new RecordQueue(QueueConfig.of(1_024).withBytes(50_000));
    for (int i = 0; i < 30; i++) {
      queue.offer(progress(streams, new UUID(0, i), 9_900)); // 10 such records fit into 100,000 bytes
    }
    is(queue.size() + " " + queue.drops.total(), "10 20");
    UUID run = new UUID(0, 0);
    queue.offer(streams.of(new QueryTerminatedEvent(run, run, Option.apply(text(30_000)), Option.empty())));
    is(queue.size() + " " + queue.drops.total(), "8 23");
  }
}
