package io.sparkevents;

import static io.sparkevents.Checks.is;
import static io.sparkevents.Checks.start;
import static io.sparkevents.HandoffQueueChecks.kinds;
import static io.sparkevents.HandoffQueueChecks.routine;
import static io.sparkevents.HandoffQueueChecks.take;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** Who waits for an answer writes its record itself, where it cannot be blocked by that. */
public final class WaiterWritesChecks {
  private static final String WRITER = "the writer";

  /** A writer that has nothing to write, on a thread of its own until the queue is finished; what it writes. */
  private static List<Record> written(HandoffQueue queue, ConcurrentLinkedQueue<Throwable> wrong) {
    List<Record> written = Collections.synchronizedList(new ArrayList<>());
    Thread writer =
        start(
            wrong,
            () -> {
              while (!queue.isFinished()) {
                List<Record> some = new ArrayList<>();
                queue.take(some, 60_000);
                written.addAll(some);
              }
            });
    writer.setName(WRITER);
    return written;
  }

  /** Until so much is written, and the writer waits for more. */
  private static void awaitIdle(List<Record> written, int count) {
    while (written.size() < count) {
      Thread.yield();
    }
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      while (thread.getName().equals(WRITER) && thread.getState() != Thread.State.TIMED_WAITING && thread.isAlive()) {
        Thread.yield();
      }
    }
  }

  /** Who waits writes by himself, but only into a pipe that is known to be empty: he must never be blocked by it. */
  public static void checkWhoWaitsWritesIntoAnEmptyPipeAlone() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
    List<String> direct = Collections.synchronizedList(new ArrayList<>());
    queue.rewind();
    queue.open(line -> direct.add(new String(line, "UTF-8").replaceAll(".*\"seq\":(\\d+).*\n", "$1")));
    List<Record> written = written(queue, wrong);
    awaitIdle(written, 0);
    queue.offer(routine(), true); // nothing has been answered for yet: hello may still be in the pipe
    awaitIdle(written, 1);
    queue.offer(routine(), true); // 1 is not answered for
    awaitIdle(written, 2);
    queue.answered(1);
    queue.offer(routine(), true); // 2 is not
    awaitIdle(written, 3);
    queue.answered(3);
    is(queue.offer(routine(), true), 4); // now
    is(direct, "[4]");
    queue.offer(routine(), true); // 4 is under way
    awaitIdle(written, 4);
    queue.acknowledge(5);
    queue.offer(routine()); // nobody waits
    awaitIdle(written, 5);
    queue.acknowledge(6);
    char[] much = new char[Shortcut.MOST_BYTES];
    Arrays.fill(much, 'x');
    String text = new String(much);
    queue.offer(new Record("long", Record.Worth.ROUTINE, null, json -> json.writeStringField("text", text)), true);
    awaitIdle(written, 6);
    queue.acknowledge(7);
    queue.offer(routine(), true);
    is(direct, "[4, 8]");
    is(kinds(written), "r1 r2 r3 r5 r6 l7");
    queue.finish();
    is(wrong, "[]");
  }

  /** What a predecessor has answered for does not say that the new pipe is empty; what it got is sent again. */
  public static void checkANewPipeIsNotKnownToBeEmpty() throws Exception {
    HandoffQueue queue = new HandoffQueue(10, true);
    ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
    List<Long> direct = Collections.synchronizedList(new ArrayList<>());
    AtomicBoolean broken = new AtomicBoolean();
    Shortcut way =
        line -> {
          if (broken.get()) {
            throw new java.io.IOException("Broken pipe");
          }
          direct.add((long) line.length);
        };
    queue.offer(routine(), true);
    is(kinds(take(queue)), "r1");
    queue.open(way);
    List<Record> written = written(queue, wrong);
    awaitIdle(written, 0);
    queue.acknowledge(1);
    broken.set(true);
    is(queue.offer(routine(), true), 2); // written, as far as the writer knows, into a pipe that is broken
    queue.rewind();
    queue.open(way);
    broken.set(false);
    queue.wakeWriter();
    awaitIdle(written, 1);
    queue.answered(2); // by the predecessor, which was late to say so
    queue.offer(routine(), true);
    awaitIdle(written, 2);
    is(kinds(written), "r2 r3");
    is(direct, "[]");
    queue.answered(3);
    queue.offer(routine(), true);
    is(direct.size(), 1);
    queue.open(null);
    queue.answered(4);
    queue.offer(routine(), true);
    awaitIdle(written, 3);
    is(direct.size(), 1);
    queue.finish();
    is(wrong, "[]");
  }

  /** Threads that write by themselves and a writer: one at a time, in order, nothing twice, nothing left out. */
  public static void checkOneWritesAtATime() throws Exception {
    HandoffQueue queue = new HandoffQueue(1_000, false);
    ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
    ConcurrentLinkedQueue<Long> pipe = new ConcurrentLinkedQueue<>();
    AtomicBoolean busy = new AtomicBoolean();
    AtomicLong direct = new AtomicLong();
    AtomicLong last = new AtomicLong();
    java.util.function.LongConsumer write =
        seq -> {
          if (!busy.compareAndSet(false, true)) {
            throw new AssertionError("two write at a time");
          }
          if (seq != last.get() + 1) {
            throw new AssertionError(seq + " after " + last.get());
          }
          last.set(seq);
          pipe.add(seq);
          busy.set(false);
        };
    queue.open(
        line -> {
          direct.incrementAndGet();
          write.accept(Long.parseLong(new String(line, "UTF-8").replaceAll(".*\"seq\":(\\d+).*\n", "$1")));
        });
    Thread writer =
        start(
            wrong,
            () -> {
              while (!queue.isFinished()) {
                List<Record> some = new ArrayList<>();
                queue.take(some, 5);
                for (Record record : some) {
                  write.accept(record.seq());
                }
              }
            });
    AtomicBoolean over = new AtomicBoolean();
    Thread sidecar =
        start(
            wrong,
            () -> {
              while (!over.get()) {
                Long seq = pipe.poll();
                if (seq == null) {
                  Thread.yield();
                } else {
                  queue.acknowledge(seq);
                }
              }
            });
    List<Thread> listeners = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      boolean waits = i == 0;
      listeners.add(
          start(
              wrong,
              () -> {
                for (int n = 0; n < 3_000; n++) {
                  long seq = queue.offer(routine(), waits);
                  if (waits && !queue.awaitAnswered(seq, 60_000)) {
                    throw new AssertionError(seq + " is not answered for");
                  }
                  if (!waits && n % 100 == 0) {
                    Thread.sleep(1);
                  }
                }
              }));
    }
    for (Thread listener : listeners) {
      listener.join();
    }
    queue.finish();
    writer.join();
    over.set(true);
    sidecar.join();
    is(wrong, "[]");
    is(last.get(), 6_000L);
    is(direct.get() > 0, true);
  }
}
