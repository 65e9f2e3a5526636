import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/** A connection of the examples, without a client library: the protocol takes 40 lines. */
class Connection implements AutoCloseable {
    private final Socket socket = new Socket();
    private final DataInputStream in;

    @SuppressWarnings("serial")
    static class ServerError extends IOException {
        ServerError(String message) {
            super(message);
        }
    }

    /** Waits `timeout` milliseconds at most, to connect and for a reply; 0: without end. */
    Connection(String host, int port, int timeout) throws IOException {
        socket.connect(new InetSocketAddress(host, port), timeout);
        socket.setSoTimeout(timeout);
        in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
    }

    /** The reply: Long, String, byte[] or Object[]. Throws an error, also one that is the last element of an array. */
    Object send(Object... words) throws IOException {
        var out = new ByteArrayOutputStream();
        out.writeBytes(("*" + words.length + "\r\n").getBytes());
        for (Object word : words) {
            byte[] bytes = word instanceof byte[] raw ? raw : word.toString().getBytes(StandardCharsets.UTF_8);
            out.writeBytes(("$" + bytes.length + "\r\n").getBytes());
            out.writeBytes(bytes);
            out.writeBytes("\r\n".getBytes());
        }
        out.writeTo(socket.getOutputStream());
        Object reply = read();
        Object last = reply instanceof Object[] elements ? elements[elements.length - 1] : reply;
        if (last instanceof ServerError error) throw error;
        return reply;
    }

    private Object read() throws IOException {
        var line = new StringBuilder();
        for (int c = in.read(); c != '\r'; c = in.read()) {
            if (c < 0) throw new EOFException("the server has closed the connection");
            line.append((char) c);
        }
        in.read(); // '\n'
        String rest = line.substring(1);
        switch (line.charAt(0)) { // no command of the examples has another type of reply
            case '+': return rest;
            case '-': return new ServerError(rest);
            case ':': return Long.parseLong(rest);
            case '$':
                byte[] bytes = new byte[Integer.parseInt(rest)];
                in.readFully(bytes);
                in.skipNBytes(2);
                return bytes;
            case '*':
                Object[] elements = new Object[Integer.parseInt(rest)];
                for (int i = 0; i < elements.length; i++) elements[i] = read();
                return elements;
            default: throw new IOException("not a reply: " + line);
        }
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException error) {
            // it is not used again
        }
    }
}
