package fsm

import (
	"fmt"

	"github.com/ringrift/ringlog/internal/frame"
)

// decideListeners decides what is told of those who listen and those who publish.
func (a *applier) decideListeners(c frame.Command) (Result, error) {
	switch c := c.(type) {
	case frame.ClientPut:
		return a.putClient(c), nil
	case frame.CursorsScanned:
		return a.cursorsScanned(c)
	case frame.ChainOverdue:
		return a.chainOverdue(c), nil
	case frame.Pressure:
		return a.takePressure(c), nil
	default:
		return Result{}, fmt.Errorf("fsm: apply %d: command %T: %w", a.index, c, frame.ErrUnsupported)
	}
}
