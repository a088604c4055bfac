// A file of the parent's own: its asserts are alive, since the parent named no build type.
#ifdef NDEBUG
#error "Eddy switched off the asserts of its parent"
#endif

int main() {}
