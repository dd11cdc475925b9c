package fsm

import (
	"iter"

	"github.com/RaduBerinde/btreemap"
)

// orderedMap is a B-tree as an interface. A package that imports a struct with a field of a generic type compiles the
// methods of that type again, once for each pair of key and value types; an interface has none to compile. With the
// trees themselves as fields, small packages took most of their compile time for that.
type orderedMap[K, V any] interface {
	Get(key K) (K, V, bool)
	ReplaceOrInsert(key K, value V) (before K, was V, replaced bool)
	Delete(key K) (K, V, bool)
	Min() (K, V, bool)
	Len() int
	Ascend(from btreemap.LowerBound[K], to btreemap.UpperBound[K]) iter.Seq2[K, V]
	Descend(from btreemap.UpperBound[K], to btreemap.LowerBound[K]) iter.Seq2[K, V]
}

// cloneMap returns a copy that shares what neither changes.
func cloneMap[K, V any](m orderedMap[K, V]) orderedMap[K, V] {
	return m.(*btreemap.BTreeMap[K, V]).Clone()
}
