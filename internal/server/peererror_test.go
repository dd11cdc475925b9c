package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// A refusal that comes from another node is known here by its error, and said once.
func TestARefusalOfAnotherNodeIsSaidOnce(t *testing.T) {
	t.Parallel()
	for _, refused := range raftnode.JoinRefusals() {
		err := fromPeer(connectError(service.ToAPI(refused)))
		var answer *api.Error
		if !errors.Is(err, refused) || !errors.As(err, &answer) {
			t.Errorf("%v is not %v", err, refused)
		}
		if n := strings.Count(err.Error(), refused.Error()); n != 1 {
			t.Errorf("said %d times: %v", n, err)
		}
	}
}
