package server

import "github.com/ringrift/ringlog/api"

// errManyStreams refuses a read beyond Config.MaxStreams.
func errManyStreams() *api.Error {
	return &api.Error{Code: api.Overloaded, Field: "follow", Message: "there are as many streams as this node serves at a time",
		Remedy: "end some, or read from another node"}
}

// stream takes a place among the streams without waiting, or refuses. The caller has to call release once.
func (s *Server) stream() (release func(), err error) {
	select {
	case s.streams <- struct{}{}:
		s.metrics.streams.Inc()
		return func() { <-s.streams; s.metrics.streams.Dec() }, nil
	default:
		return nil, errManyStreams()
	}
}
