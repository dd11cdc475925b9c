package client

// SettlerOf lets tests settle offsets that the member was never handed.
func SettlerOf(m *GroupMember) Settler { return (*settler)(m) }
