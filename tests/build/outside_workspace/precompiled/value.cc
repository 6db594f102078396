int main() { std::printf("value %d\n", value()); }
