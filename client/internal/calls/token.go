package calls

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ringrift/ringlog/api"
)

// clusterToken is the token that requests carry. One of a file is read again when a node refuses it, and not before:
// the file may be replaced on a client's host before the nodes have the new token.
type clusterToken struct {
	file  string // "" if the token never changes
	value atomic.Pointer[string]
	mu    sync.Mutex // held while the file is read
}

// newClusterToken returns a token, which is that of a file unless file is "".
func newClusterToken(token, file string) *clusterToken {
	t := &clusterToken{file: file}
	t.value.Store(&token)
	return t
}

// current returns the token, "" for none.
func (t *clusterToken) current() string { return *t.value.Load() }

// renew reports whether there is another token than the one that a node has refused. A file that cannot be read, or is
// empty because somebody is writing it, has none.
func (t *clusterToken) renew(refused string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Another call may have read the file since.
	if t.current() != refused || t.file == "" {
		return t.current() != refused
	}
	found, err := ReadToken(t.file)
	if err != nil || found == refused {
		return false
	}
	t.value.Store(&found)
	return true
}

// ReadToken returns the token in a file, without the white space around it. An empty file is an error: it would
// silently mean that there is no token.
func ReadToken(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return token, api.CheckToken(token)
}
