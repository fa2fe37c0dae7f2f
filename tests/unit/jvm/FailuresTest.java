package io.sparkevents;

import static io.sparkevents.Checks.is;

import com.fasterxml.jackson.databind.JsonNode;
import io.sparkevents.listener.Failures;
import io.sparkevents.listener.Text;
import io.sparkevents.queue.Record;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Arrays;
import org.apache.spark.SparkThrowable;
import org.junit.jupiter.api.Test;

/** Tests of exceptions in records, including exceptions whose own methods throw. */
final class FailuresTest {
  private static JsonNode written(Throwable failure) throws Exception {
    return Record.JSON.valueToTree(Failures.fields(failure));
  }

  /** Exception whose methods throw exceptions. */
  private static final class Awkward extends RuntimeException implements SparkThrowable {
    private final transient Error answer;

    Awkward(Error answer, Throwable cause) {
      super("unseen", cause);
      this.answer = answer;
    }

    @Override
    public String getMessage() {
      throw answer;
    }

    @Override
    public String getErrorClass() {
      throw answer;
    }

    @Override
    public String getCondition() {
      throw answer;
    }
  }

  /** If getMessage() throws, the record contains the exception's class name and the complete rest of the chain. */
  @Test
  void anExceptionThatThrowsIsRecordedByClass() throws Exception {
    for (Error answer : Arrays.asList(new scala.NotImplementedError(), new AssertionError("x"), new StackOverflowError())) {
      JsonNode recorded = written(new IllegalStateException("outer", new Awkward(answer, new java.io.IOException("inner"))));
      JsonNode chain = recorded.path("chain");
      is(chain.size(), 3);
      is(chain.path(0).path("message").asText(), "outer");
      is(chain.path(1).path("type").asText(), Awkward.class.getName());
      is(chain.path(1).path("message").asText().contains(answer.getClass().getName()), true);
      is(chain.path(1).path("error_class"), "null");
      is(chain.path(2).path("message").asText(), "inner");
      is(recorded.path("trace").asText().startsWith("java.lang.IllegalStateException: outer"), true);
    }
    is(Failures.describe(new Awkward(new AssertionError("x"), null)).startsWith(Awkward.class.getName() + " ("), true);
  }

  /** If getCause() throws, the chain of causes ends there. */
  @Test
  void aCauseThatThrowsEndsTheChain() throws Exception {
    Throwable awkward =
        new Exception("outer") {
          @Override
          public synchronized Throwable getCause() {
            throw new UnsupportedOperationException();
          }
        };
    JsonNode recorded = written(awkward);
    is(recorded.path("chain").size(), 1);
    is(recorded.path("trace").asText().contains("outer"), true);
  }

  /** A long trace keeps its beginning and its last part, which often names the cause. */
  @Test
  void aLongTraceIsCut() throws Exception {
    Throwable deep = new Exception("0");
    for (int i = 1; i < 2_000; i++) {
      deep = new Exception("link " + i, deep);
    }
    StringWriter whole = new StringWriter();
    deep.printStackTrace(new PrintWriter(whole));
    String cut = written(deep).path("trace").asText();
    is(cut, Text.cut(whole.toString()));
    is(whole.getBuffer().length() > Text.LIMIT && cut.length() < Text.LIMIT + 100, true);
    is(cut.startsWith("java.lang.Exception: link 1999") && cut.contains(" characters cut] ") && cut.contains("Exception: 0"), true);
  }
}
