package serve

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// renewEvery is how often the files of a certificate are read again. They are small, and what reports changes of files
// misses those of a mounted secret.
const renewEvery = 10 * time.Second

// renew uses new certificates from files that change, until ctx ends. SIGHUP asks for it at once.
func (n *node) renew(ctx context.Context) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	defer signal.Stop(asked)
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	// What was wrong with the files last, so that it is logged once and not each time.
	problem := ""
	for {
		bySignal := false
		// Who sends the signal wants an answer in the log, whether anything has changed or not.
		select {
		case <-ctx.Done():
			return
		case <-asked:
			bySignal = true
		case <-tick.C:
		}
		problem = n.reload(problem, bySignal)
	}
}

// reload reads the files again, and logs what is new, or everything if always is set. It returns what is wrong with
// them, "" if nothing is.
func (n *node) reload(before string, always bool) (problem string) {
	changed, err := n.certs.Reload()
	until := n.certs.State().Until
	// A node without new files keeps what it has, so an error is logged with how long that is valid. That the files
	// can be read again is news, too.
	switch {
	case err != nil && (always || err.Error() != before):
		n.logger.Error("the new certificate files are not used: the node keeps what it has", "error", err,
			"valid-until", until)
	case err == nil && (always || changed || before != ""):
		n.logger.Info("certificate files read", "changed", changed, "valid-until", until)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
