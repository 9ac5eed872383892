// Dead letters on the LMAX Disruptor: the incumbent beside `dead_letters.rs`.

import com.lmax.disruptor.EventHandler;
import com.lmax.disruptor.ExceptionHandler;
import com.lmax.disruptor.dsl.Disruptor;
import com.lmax.disruptor.util.DaemonThreadFactory;
import java.util.ArrayList;
import java.util.List;

public final class DeadLetters {
    static final class Message {
        String text;
        int value;
    }

    record Dead(long seq, String text, String error) {}

    /** Puts a message aside that could not be parsed. */
    static final class Aside implements ExceptionHandler<Message> {
        final List<Dead> letters = new ArrayList<>();

        @Override
        public void handleEventException(Throwable error, long seq, Message message) {
            letters.add(new Dead(seq, message.text, error.getMessage()));
            message.value = 0;
        }

        @Override
        public void handleOnStartException(Throwable error) {
            throw new RuntimeException(error);
        }

        @Override
        public void handleOnShutdownException(Throwable error) {
            throw new RuntimeException(error);
        }
    }

    static final class Sum implements EventHandler<Message> {
        long sum;

        @Override
        public void onEvent(Message message, long seq, boolean endOfBatch) {
            sum += message.value;
        }
    }

    public static void main(String[] args) {
        Disruptor<Message> disruptor =
                new Disruptor<>(Message::new, 64, DaemonThreadFactory.INSTANCE);
        EventHandler<Message> parse = (message, seq, endOfBatch) -> {
            if (!message.text.matches("\\d+")) throw new NumberFormatException("invalid digit found in string");
            message.value = Integer.parseInt(message.text);
        };
        Aside aside = new Aside();
        Sum sum = new Sum();
        disruptor.handleEventsWith(parse).then(sum);
        disruptor.handleExceptionsFor(parse).with(aside);
        disruptor.start();
        for (int n = 0; n < 100; n++) {
            String text = n % 25 == 7 ? n + "x" : "" + n;
            disruptor.publishEvent((message, seq) -> message.text = text);
        }
        disruptor.shutdown();
        for (Dead dead : aside.letters) {
            System.out.println("dead letter " + dead.seq() + ": \"" + dead.text() + "\", " + dead.error());
        }
        System.out.println("sum " + sum.sum);
    }
}
