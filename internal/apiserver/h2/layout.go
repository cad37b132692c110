package h2

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"

	"golang.org/x/net/http2"
)

// streamIDPath leads from the library's http.ResponseWriter to the number of its stream. The
// library exports no way to get it.
var streamIDPath = []string{"rws", "stream", "id"}

// streamID returns the number of the stream that w answers on; false if w is not built as expected.
func streamID(w http.ResponseWriter) (uint32, bool) {
	v := reflect.ValueOf(w)
	for _, field := range streamIDPath {
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return 0, false
		}
		v = v.Elem().FieldByName(field)
	}
	if !v.IsValid() || v.Kind() != reflect.Uint32 {
		return 0, false
	}
	return uint32(v.Uint()), true
}

// CheckLayout returns an error if the number of a stream cannot be read from the library's
// http.ResponseWriter: this version of the library is then an unknown one. It serves one request
// in memory, which takes less than a millisecond.
func CheckLayout() error {
	server, client := net.Pipe()
	id, err := make(chan uint32, 1), make(chan error, 1)
	handler := func(w http.ResponseWriter, _ *http.Request) {
		if got, ok := streamID(w); ok {
			id <- got
			return
		}
		err <- fmt.Errorf("no field %v in %T", streamIDPath, w)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		new(http2.Server).ServeConn(server, &http2.ServeConnOpts{Handler: http.HandlerFunc(handler)})
	}()
	go func() { _, _ = io.Copy(io.Discard, client) }()
	go func() { _ = ask(client) }()
	defer func() {
		_ = client.Close()
		<-served
	}()
	select {
	case got := <-id:
		if got != firstStream {
			return fmt.Errorf("%v of the first stream is %d", streamIDPath, got)
		}
		return nil
	case err := <-err:
		return err
	case <-served:
		return errors.New("a request in memory was not served")
	}
}

// firstStream is the number of a client's first stream (RFC 9113, 5.1.1).
const firstStream = 1

// ask sends a request for "/".
func ask(to io.Writer) error {
	if _, err := io.WriteString(to, http2.ClientPreface); err != nil {
		return err
	}
	fr := http2.NewFramer(to, nil)
	if err := fr.WriteSettings(); err != nil {
		return err
	}
	return fr.WriteHeaders(http2.HeadersFrameParam{
		StreamID: firstStream, EndStream: true, EndHeaders: true,
		// :method GET, :scheme https, :path / and :authority x (RFC 7541, appendix A).
		BlockFragment: []byte{0x82, 0x87, 0x84, 0x41, 1, 'x'},
	})
}
