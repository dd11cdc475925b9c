// The library of plots with its style, in a file of its own.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

export default uPlot;
